"""The agent's entry. It must be readable to any Python 3, to say which one it needs."""

import sys

if sys.version_info < (3, 8):
    sys.stdout.write(
        'tfdeploy-answer:{"refused": "Python %d.%d is too old, 3.8 is needed", '
        '"hint": "set the host\'s python to a newer one"}\n' % sys.version_info[:2]
    )
    sys.exit(0)

from tfdeploy.agent.verbs import main

sys.exit(main(sys.argv[1:]))
