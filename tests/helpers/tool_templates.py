"""Chat templates that write tools, calls and results as those of well-known models do, in other words."""

_HERMES_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>{% for tool in tools %}{{ '\n' ~ tool|tojson }}{% endfor %}"
    "{{ '\n' }}</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}{{ "\n" }}</tool_call>'
)


def hermes(default=None):
    """ChatML with the tools of Qwen."""
    begin = "<|im_start|>system\n{{ system }}"
    return (
        "{%- set system = messages[0].content if messages[0].role == 'system' else "
        + ("none" if default is None else f"'{default}'")
        + " -%}{%- if tools -%}"
        + begin.replace("{{ system }}", "{% if system is not none %}{{ system ~ '\n\n' }}{% endif %}")
        + _HERMES_TOOLS
        + "{{ '<|im_end|>\n' }}{%- elif system is not none -%}"
        + begin
        + "{{ '<|im_end|>\n' }}{%- endif -%}"
        "{%- set messages = messages[1:] if messages[0].role == 'system' else messages -%}"
        "{%- for message in messages -%}"
        "{%- if message.role == 'tool' -%}"
        "{{ '<|im_start|>user' if loop.previtem is not defined or loop.previtem.role != 'tool' }}"
        "{{ '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}"
        "{{ '<|im_end|>\n' if loop.nextitem is not defined or loop.nextitem.role != 'tool' }}"
        "{%- else -%}{{ '<|im_start|>' ~ message.role }}"
        "{{ '\n' ~ message.content if message.content or not message.tool_calls }}"
        "{%- for call in message.tool_calls or [] -%}"
        '{{ \'\n<tool_call>\n{"name": "\' ~ call.function.name ~ \'", "arguments": \' ~ call.function.arguments|tojson '
        "~ '}\n</tool_call>' }}{%- endfor -%}{{ '<|im_end|>\n' }}{%- endif -%}{%- endfor -%}"
        "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
    )


def llama3():
    """Llama 3.1 with tools in the first message of the user."""
    return (
        "{%- set begin, end = '<|start_header_id|>', '<|end_header_id|>\n\n' -%}"
        "{%- set system = messages[0].content|trim if messages[0].role == 'system' else '' -%}"
        "{%- set messages = messages[1:] if messages[0].role == 'system' else messages -%}"
        "{{ bos_token ~ begin ~ 'system' ~ end ~ ('Environment: ipython\n' if tools else '') }}"
        "{{ 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' ~ system ~ '<|eot_id|>' }}"
        "{%- for message in messages -%}"
        "{%- if message.role == 'tool' -%}{{ begin ~ 'ipython' ~ end ~ message.content|tojson }}"
        "{%- elif message.tool_calls -%}"
        "{%- if message.tool_calls|length > 1 -%}{{ raise_exception('one call alone') }}{%- endif -%}"
        "{%- set call = message.tool_calls[0].function -%}"
        "{{ begin ~ 'assistant' ~ end ~ '{\"name\": \"' ~ call.name ~ '\", \"parameters\": ' }}"
        "{{ call.arguments|tojson ~ '}' }}"
        "{%- else -%}{{ begin ~ message.role ~ end }}{%- if tools and loop.first -%}"
        "{{ 'Given the following functions, please respond with a JSON for a function call with its proper ' }}"
        "{{ 'arguments that best answers the given prompt.\n\n' }}"
        '{{ \'Respond in the format {"name": function name, "parameters": \' }}'
        "{{ 'dictionary of argument name and its value}.Do not use variables.\n\n' }}"
        "{%- for tool in tools -%}{{ tool|tojson(indent=4) ~ '\n\n' }}{%- endfor -%}{%- endif -%}"
        "{{ message.content|trim }}{%- endif -%}{{ '<|eot_id|>' }}{%- endfor -%}"
        "{{ begin ~ 'assistant' ~ end if add_generation_prompt }}"
    )


def mistral():
    """Mistral's third tokenizer."""
    return (
        "{%- set system = messages[0].content if messages[0].role == 'system' else none -%}"
        "{%- set messages = messages[1:] if messages[0].role == 'system' else messages -%}"
        "{%- set count = namespace(turns=0, last=-1) -%}{%- for message in messages -%}"
        "{%- if message.role == 'user' -%}{%- set count.last = loop.index0 -%}{%- endif -%}"
        "{%- if message.role != 'tool' and not message.tool_calls -%}"
        "{%- if (message.role == 'user') != (count.turns % 2 == 0) -%}{{ raise_exception('take turns') }}{%- endif -%}"
        "{%- set count.turns = count.turns + 1 -%}{%- endif -%}{%- endfor -%}"
        "{{ bos_token }}{%- for message in messages -%}"
        "{%- if message.role == 'user' -%}"
        "{%- if tools and loop.index0 == count.last -%}"
        "{{ '[AVAILABLE_TOOLS] ' ~ tools|tojson ~ '[/AVAILABLE_TOOLS]' }}{%- endif -%}"
        "{{ '[INST] ' ~ (system ~ '\n\n' if loop.last and system is not none else '') ~ message.content ~ '[/INST]' }}"
        "{%- elif message.role == 'tool' -%}"
        '{{ \'[TOOL_RESULTS] {"content": \' ~ message.content ~ \', "call_id": "\' ~ message.tool_call_id }}'
        "{{ '\"}[/TOOL_RESULTS]' }}"
        "{%- elif message.tool_calls -%}{{ '[TOOL_CALLS] [' }}{%- for call in message.tool_calls -%}"
        '{{ \'{"name": "\' ~ call.function.name ~ \'", "arguments": \' ~ call.function.arguments|tojson }}'
        "{{ ', \"id\": \"' ~ call.id ~ '\"}' ~ ('' if loop.last else ', ') }}{%- endfor -%}{{ ']' ~ eos_token }}"
        "{%- else -%}{{ ' ' ~ message.content|trim ~ eos_token }}{%- endif -%}{%- endfor -%}"
    )


TOOL_TEMPLATES = {"hermes": hermes(), "qwen": hermes("Be good."), "llama3": llama3(), "mistral": mistral()}
STYLES = {"hermes": "hermes", "qwen": "hermes", "llama3": "llama3", "mistral": "mistral"}
