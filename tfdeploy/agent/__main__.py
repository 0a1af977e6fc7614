"""The agent's entry point. Any Python 3 must be able to parse it, to report that it is too old."""

import sys

if sys.version_info < (3, 8):
    sys.stdout.write(
        'tfdeploy-answer:{"refused": "Python %d.%d is too old, 3.8 is needed", '
        '"hint": "set the host\'s python to a newer one"}\n' % sys.version_info[:2]
    )
    sys.exit(0)

from tfdeploy.agent.verbs import main

sys.exit(main(sys.argv[1:]))
