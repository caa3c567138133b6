"""The byte-level BPE tokenizer of the tiny checkpoints. Imported by the scripts beside it, in the engine environment."""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


def tokenizer(vocab_size: int, special: Sequence[str], chat_template: str) -> PreTrainedTokenizerFast:
    """Special tokens, the 256 bytes, then pairs of bytes in alphabetical order until the vocabulary is full.

    Merges are made up rather than trained: training depends on a corpus, and the ids must be the same everywhere. The
    first special token ends a text.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [c for c in alphabet if c.isascii() and c.isalpha()]
    room = vocab_size - len(special) - len(alphabet)
    merges = [(a, b) for a in letters for b in letters][:room]
    tokens = [*special, *alphabet, *(a + b for a, b in merges)]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=special[0], pad_token=special[0], additional_special_tokens=list(special[1:])
    )
    fast.chat_template = chat_template
    return fast
