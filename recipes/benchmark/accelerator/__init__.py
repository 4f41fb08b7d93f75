"""Training, generation and attention on one accelerator with JAX, part by part, beside KerasHub and Transformers.

    python -m recipes.benchmark accelerator --parts gpt2 attention

Nothing here needs TensorFlow or the extra `recipes`: a machine with a GPU often has JAX, Keras and little more. Each
measurement is a process of its own with a time limit, because compiling may take minutes and libraries take the whole
memory of a device. A process prints each row as soon as it has it, so a limit costs only the rows that are missing.
"""
