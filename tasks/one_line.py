"""What others wrote, as one line that can be shown."""


def one_line(text: str, most: int = 400) -> str:
    """One line without control characters: a terminal obeys those, and a model or a server may write them."""
    flat = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return flat if len(flat) <= most else flat[: most - 1] + "…"
