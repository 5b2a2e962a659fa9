"""Chat templates in the styles of the families that the engine runs, in the words of their published files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """A template with what its tokenizer calls its special tokens. `adds_bos`: it leaves the BOS to the tokenizer."""

    source: str
    bos: str
    eos: str
    specials: tuple[str, ...]
    adds_bos: bool = False


_CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
    "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
    "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
_LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

STYLES = {
    "chatml": Style(_CHATML, "<|im_start|>", "<|im_end|>", ("<|im_start|>", "<|im_end|>")),
    "llama3": Style(
        _LLAMA3,
        "<|begin_of_text|>",
        "<|eot_id|>",
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    "zephyr": Style(_ZEPHYR, "<s>", "</s>", ("<s>", "</s>"), adds_bos=True),
    "llama2": Style(_LLAMA2, "<s>", "</s>", ("<s>", "</s>")),
}

REWRITING = {
    "only the newest turn": "{{ messages[0]['content'] }}{{ messages[-1]['content'] }}",
    "turns counted at the top": "{{ messages | length }}{% for m in messages %}{{ m['content'] }};{% endfor %}",
    "newest first": "{% for m in messages | reverse %}{{ m['content'] }};{% endfor %}",
    "the last answer marked": (
        "{% for m in messages %}{{ m['role'] + ':' + m['content'] }}{{ '!' if loop.last else ';' }}{% endfor %}"
    ),
}
BROKEN = {
    "a syntax error": "{% for m in messages %}{{ m['content'] ",
    "no system prompt allowed": (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{{ m['content'] }}{% endfor %}"
    ),
    "a value of the wrong kind": "{{ messages + 1 }}",
    "a missing field": "{% for m in messages %}{{ m.parts.text }}{% endfor %}",
}
