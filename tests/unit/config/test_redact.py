"""Secrets are hidden: in variables, in words of commands, and in any text."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.config.redact import HIDDEN, Redactor, show_variable, show_words


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SEED", "7", "7"), ("DEBUG", "true", "true"), ("RATE", "0.01", "0.01"),
        ("API_TOKEN", "7", HIDDEN), ("password", "1234", HIDDEN), ("URL", "http://x", HIDDEN),
        ("WHO", "hunter2", HIDDEN), ("EMPTY", "", ""),
    ],
)  # fmt: skip
def test_only_plain_numbers_and_switches_of_variables_are_shown(name, value, shown):
    assert show_variable(name, value) == shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--lr", "0.1", "--name=x"], ["--lr", "0.1", "--name=x"]),
        (["--api-key", "abc", "more"], ["--api-key", HIDDEN, "more"]),
        (["--api-key=abc", "TOKEN=abc"], [f"--api-key={HIDDEN}", f"TOKEN={HIDDEN}"]),
        (["--auth", "--lr", "1"], ["--auth", "--lr", "1"]),
        (["http://me:pw@host/x"], [f"http://me:{HIDDEN}@host/x"]),
        (["http://h/x?a=1&access_token=t#b"], [f"http://h/x?a=1&access_token={HIDDEN}#b"]),
        (["https://ghp_0123456789abcdefghij@h/x"], [f"https://{HIDDEN}@h/x"]),
        (["https://ghp_0123456789abcdefghij:@h"], [f"https://{HIDDEN}:@h"]),
        (["https://ghp_0123456789abcdefghij:x-oauth@h"], [f"https://{HIDDEN}:{HIDDEN}@h"]),
        (["ssh://vera@gate", "http://h/?page=2"], ["ssh://vera@gate", "http://h/?page=2"]),
    ],
)
def test_the_values_of_secret_options_are_hidden(words, shown):
    assert show_words(words) == shown


def test_secret_values_are_hidden_wherever_they_occur():
    inventory = make_inventory(
        training='secrets = ["WANDB_API_KEY"]\nenv = { MY_TOKEN = "hunter2", PLAIN = "visible" }\n'
        'worker.env = { DB_PASSWORD = "hunter2and3", PIN_KEY = "1" }'
    )
    redact = Redactor(inventory, {"WANDB_API_KEY": "w4ndb", "OTHER": "other"})
    text = "hunter2 hunter2and3 w4ndb visible other 1 ftp://a:b@c"
    hidden = f"{HIDDEN} {HIDDEN} {HIDDEN} visible other 1 ftp://a:{HIDDEN}@c"
    assert redact(text) == hidden


def test_without_secrets_a_text_stays():
    assert Redactor(make_inventory(), {})("any text") == "any text"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('-API_KEY = "s3cr3t-s3cr3t"', f'-API_KEY = "{HIDDEN}"'),
        ("+os.environ['HF_TOKEN'] = 'hf_abcdefgh'", f"+os.environ['HF_TOKEN'] = '{HIDDEN}'"),
        ('+login(password="s3cr3t-s3cr3t")', f'+login(password="{HIDDEN}")'),
        ('{"api_key": "s3cr3t-s3cr3t"}', f'{{"api_key": "{HIDDEN}"}}'),
        ("+key = tf.random.key(7)", "+key = tf.random.key(7)"),
        ('+tokenizer = load("bert-base-uncased")', '+tokenizer = load("bert-base-uncased")'),
        ("+layer = Attention(key_dim=64)", "+layer = Attention(key_dim=64)"),
    ],
)
def test_literals_that_a_program_gives_to_secret_names_are_hidden(line, shown):
    assert Redactor(make_inventory(), {})(line) == shown
