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

_QWEN3 = (
    "{%- if messages[0].role == 'system' %}\n"
    "    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
    "{%- endif %}\n{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n"
    "{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n"
    '    {%- if ns.multi_step_tool and message.role == "user" and message.content is string %}\n'
    "        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n"
    "{%- endfor %}\n{%- for message in messages %}\n"
    "    {%- if message.content is string %}\n        {%- set content = message.content %}\n    {%- else %}\n"
    "        {%- set content = '' %}\n    {%- endif %}\n"
    '    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}\n'
    "        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n"
    "    {%- elif message.role == \"assistant\" %}\n        {%- set reasoning_content = '' %}\n"
    "        {%- if message.reasoning_content is string %}\n"
    "            {%- set reasoning_content = message.reasoning_content %}\n        {%- endif %}\n"
    "        {%- if loop.index0 > ns.last_query_index %}\n"
    "            {%- if loop.last or (not loop.last and reasoning_content) %}\n"
    "                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n')"
    " + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n            {%- else %}\n"
    "                {{- '<|im_start|>' + message.role + '\\n' + content }}\n            {%- endif %}\n"
    "        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}\n        {%- endif %}\n"
    "        {{- '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}"
)
_SMOLLM3 = (
    "{%- if enable_thinking is not defined -%}\n{%- set enable_thinking = true -%}\n{%- endif -%}\n"
    "{%- set reasoning_mode = '/think' if enable_thinking else '/no_think' -%}\n"
    "{{- '<|im_start|>system\\n## Metadata\\n\\nReasoning Mode: ' + reasoning_mode + '\\n\\n' -}}\n"
    "{%- if messages[0].role == 'system' -%}\n{{- messages[0].content -}}\n{%- endif -%}\n{{- '<|im_end|>\\n' -}}\n"
    "{%- for message in messages -%}\n{%- set content = message.content if message.content is string else '' -%}\n"
    "{%- if message.role == 'user' -%}\n{{ '<|im_start|>' + message.role + '\\n'  + content + '<|im_end|>\\n' }}\n"
    "{%- elif message.role == 'assistant' -%}\n{% generation %}\n{%- if reasoning_mode == '/think' -%}\n"
    "{{ '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}\n{%- else -%}\n"
    "{{ '<|im_start|>assistant\\n' + '<think>\\n\\n</think>\\n' + content + '<|im_end|>\\n' }}\n"
    "{%- endif -%}\n{% endgeneration %}\n{%- endif -%}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n"
    "{%- if reasoning_mode == '/think' -%}\n{{ '<|im_start|>assistant\\n' }}\n{%- else -%}\n"
    "{{ '<|im_start|>assistant\\n' + '<think>\\n\\n</think>\\n'  }}\n{%- endif -%}\n{%- endif -%}"
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
    "qwen3": Style(_QWEN3, "<|im_start|>", "<|im_end|>", ("<|im_start|>", "<|im_end|>")),
    "smollm3": Style(_SMOLLM3, "<|im_start|>", "<|im_end|>", ("<|im_start|>", "<|im_end|>")),
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
