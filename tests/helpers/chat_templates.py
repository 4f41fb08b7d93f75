"""Chat templates that write as those of well-known models do, in other words, and what a tokenizer gives them."""

_LOOP = "{%- for message in messages -%}"
_ALTERNATE = (
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}"
    "{%- endif -%}"
)
_SYSTEM = (
    "{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content -%}{%- set messages = messages[1:] -%}"
    "{%- else -%}{%- set system = DEFAULT -%}{%- endif -%}"
)


def chatml(default=None, reply="<|im_start|>assistant\n", start=""):
    first = ""
    if default is not None:
        first = (
            "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n" + default + "<|im_end|>\n' }}{% endif %}"
        )
    return (
        start + _LOOP + "{%- if loop.first -%}" + first + "{%- endif -%}"
        "{{ '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>' ~ '\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '" + reply + "' }}{%- endif -%}"
    )


def headers(dates="", always=False):
    """Llama 3; with dates 3.1 and 3.2."""
    header = "'<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n'"
    system = ""
    if always:
        system = (
            _SYSTEM.replace("DEFAULT", "''")
            + "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}"
            + dates
            + "{{ system|trim ~ '<|eot_id|>' }}"
        )
    return (
        "{{ bos_token }}" + system + _LOOP + "{{ " + header + " ~ message.content|trim ~ '<|eot_id|>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}"
    )


def instruct(user, reply, system=None, last=False):
    """Mistral and Llama 2: a turn of the user in brackets, a reply up to the end of a text."""
    taken = ""
    head = ""
    if system is not None:
        head = _SYSTEM.replace("DEFAULT", "none")
        place = "loop.last" if last else "loop.first"
        taken = (
            "{%- if message.role == 'user' and "
            + place
            + " and system is not none -%}{%- set words = "
            + system
            + " -%}{%- endif -%}"
        )
    else:
        head = "{%- if messages[0].role == 'system' -%}{{ raise_exception('no system') }}{%- endif -%}"
    return (
        head
        + "{{ START }}"
        + _LOOP
        + _ALTERNATE
        + "{%- set words = message.content -%}"
        + taken
        + "{%- if message.role == 'user' -%}{{ "
        + user
        + " }}{%- else -%}{{ "
        + reply
        + " }}{%- endif -%}{%- endfor -%}"
    )


_THINKING = (
    "{%- set ns = namespace(last=-1) -%}"
    "{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}"
    "{%- endfor -%}" + _LOOP + "{%- set words = message.content -%}{%- if message.role == 'assistant' -%}"
    "{%- set thoughts = '' -%}{%- if '</think>' in words -%}"
    "{%- set thoughts = words.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}"
    "{%- set words = words.split('</think>')[-1].lstrip('\n') -%}{%- endif -%}"
    "{%- if loop.index0 > ns.last and (loop.last or thoughts) -%}"
    "{%- set words = '<think>\n' ~ thoughts.strip('\n') ~ '\n</think>\n\n' ~ words.lstrip('\n') -%}{%- endif -%}"
    "{%- endif -%}{{ '<|im_start|>' ~ message.role ~ '\n' ~ words ~ '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}"
    "{%- endif -%}"
)
_ROLE_TAGS = (
    _LOOP + "{{ '<|' ~ message.role ~ '|>\n' ~ message.content ~ END }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- else -%}{{ LAST }}{%- endif -%}"
)
_GEMMA_TURNS = (
    "{{ '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' ~ PREFIX ~ "
    "message.content|trim ~ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)
_COHERE = "'<|START_OF_TURN_TOKEN|><|{}_TOKEN|>'"
_HARMONY = (
    "<|start|>system<|message|>You are a model.\nCurrent date: {{ strftime_now('%Y-%m-%d') }}\n\n# Channels<|end|>"
)

TEMPLATES = {
    "chatml": chatml(),
    "qwen2": chatml("You are a helpful assistant."),
    "qwen3": _THINKING,
    "olmo2": (
        "{{ bos_token }}" + _LOOP + "{%- if message.role == 'assistant' -%}"
        "{{ '<|assistant|>\n' ~ message.content ~ eos_token ~ ('' if loop.last else '\n') }}{%- else -%}"
        "{{ '<|' ~ message.role ~ '|>\n' ~ message.content ~ '\n' }}{%- endif -%}"
        "{%- if loop.last and add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}{%- endfor -%}"
    ),
    "smollm3": (
        _SYSTEM.replace("DEFAULT", "'You are SmolLM.'")
        + "{{ '<|im_start|>system\n## Metadata\n\nToday Date: ' ~ strftime_now('%d %B %Y') ~ '\n\n' ~ system|trim ~ "
        "'\n\n<|im_end|>\n' }}" + _LOOP + "{%- generation -%}{{ '<|im_start|>' ~ message.role ~ '\n' ~ "
        "(message.content.lstrip('\n') if message.role == 'assistant' else message.content) ~ '<|im_end|>\n' }}"
        "{%- endgeneration -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
    ),
    "llama2": instruct(
        "bos_token ~ '[INST] ' ~ words.strip() ~ ' [/INST]'",
        "' ' ~ words.strip() ~ ' ' ~ eos_token",
        "'<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' ~ words",
    ).replace("{{ START }}", ""),
    "llama2_default": instruct(
        "bos_token ~ '[INST] ' ~ words.strip() ~ ' [/INST]'",
        "' ' ~ words.strip() ~ ' ' ~ eos_token",
        "'<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' ~ words",
    )
    .replace("{{ START }}", "")
    .replace("set system = none", "set system = 'Be good.'"),
    "llama3": headers(),
    "llama3.1": headers("{{ 'Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n' }}", always=True),
    "llama3.2": headers(
        "{%- if date_string is not defined -%}{%- if strftime_now is defined -%}"
        "{%- set date_string = strftime_now('%d %b %Y') -%}{%- else -%}{%- set date_string = '26 Jul 2024' -%}"
        "{%- endif -%}{%- endif -%}{{ 'Today Date: ' ~ date_string ~ '\n\n' }}",
        always=True,
    ),
    "gemma": (
        "{{ bos_token }}{%- if messages[0].role == 'system' -%}{{ raise_exception('no system') }}{%- endif -%}"
        + _LOOP
        + _ALTERNATE
        + _GEMMA_TURNS.replace("PREFIX", "''")
    ),
    "gemma3": (
        "{{ bos_token }}"
        + _SYSTEM.replace("DEFAULT", "none")
        + _LOOP
        + _ALTERNATE
        + _GEMMA_TURNS.replace("PREFIX", "(system ~ '\n\n' if loop.first and system is not none else '')")
    ),
    "mistral": instruct("'[INST] ' ~ words ~ ' [/INST]'", "words ~ eos_token").replace("START", "bos_token"),
    "mistral3": instruct(
        "'[INST] ' ~ words ~ '[/INST]'", "' ' ~ words|trim ~ eos_token", "system ~ '\n\n' ~ words", last=True
    ).replace("START", "bos_token"),
    "zephyr": _ROLE_TAGS.replace("END", "eos_token ~ '\n'").replace("LAST", "''"),
    "phi3": _ROLE_TAGS.replace("END", "'<|end|>\n'").replace("LAST", "eos_token"),
    "granite": (
        _LOOP + "{{ '<|start_of_role|>' ~ message.role ~ '<|end_of_role|>' ~ message.content ~ '<|end_of_text|>\n' }}"
        "{%- endfor -%}{%- if add_generation_prompt -%}"
        "{{ '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif -%}"
    ),
    "cohere": (
        "{{ bos_token }}"
        + _SYSTEM.replace("DEFAULT", "none")
        + "{%- if system is not none -%}{{ "
        + _COHERE.format("SYSTEM")
        + " ~ system ~ '<|END_OF_TURN_TOKEN|>' }}{%- endif -%}"
        + _LOOP
        + _ALTERNATE
        + "{{ ("
        + _COHERE.format("USER")
        + " if message.role == 'user' else "
        + _COHERE.format("CHATBOT")
        + ") ~ message.content.strip() ~ '<|END_OF_TURN_TOKEN|>' }}{%- endfor -%}"
        + "{%- if add_generation_prompt -%}{{ "
        + _COHERE.format("CHATBOT")
        + " }}{%- endif -%}"
    ),
    "gpt_oss": (
        "{{ '"
        + _HARMONY.replace("{{ strftime_now('%Y-%m-%d') }}", "' ~ strftime_now('%Y-%m-%d') ~ '")
        + "' }}"
        + _SYSTEM.replace("DEFAULT", "none")
        + "{%- if system is not none -%}"
        "{{ '<|start|>developer<|message|># Instructions\n\n' ~ system ~ '\n\n<|end|>' }}{%- endif -%}"
        + _LOOP
        + "{%- if message.role == 'assistant' -%}"
        "{{ '<|start|>assistant<|channel|>final<|message|>' ~ message.content ~ "
        "('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{%- else -%}"
        "{{ '<|start|>user<|message|>' ~ message.content ~ '<|end|>' }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}"
    ),
    "deepseek": (
        "{{ bos_token }}"
        + _SYSTEM.replace("DEFAULT", "''")
        + "{{ system }}"
        + _LOOP
        + "{%- if message.role == 'user' -%}{{ '<\uff5cUser\uff5c>' ~ message.content }}{%- else -%}"
        "{{ '<\uff5cAssistant\uff5c>' ~ message.content.split('</think>')[-1] ~ eos_token }}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<\uff5cAssistant\uff5c><think>\n' }}{%- endif -%}"
    ),
    "vicuna": (
        _SYSTEM.replace("DEFAULT", "'A chat.'")
        + "{{ system }}"
        + _LOOP
        + "{{ ' USER: ' ~ message.content if message.role == 'user' else "
        "' ASSISTANT: ' ~ message.content ~ eos_token }}"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{ ' ASSISTANT:' }}{%- endif -%}"
    ),
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TOKENS = (
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<think>", "</think>"),
    *("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
    *("<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|start|>", "<|message|>", "<|channel|>"),
    *("<|return|>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
)
