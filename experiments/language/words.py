"""The vocabulary of the experiments: frequent words of users who take no part in training, as a public corpus."""

from collections import Counter

from fedsynth.data.text import words_of
from fedsynth.research.corpora import stack_exchange


def public_words(count, read=stack_exchange):
    """The most frequent words of the split "public", the most frequent first."""
    counts = Counter(word for text in read("public")["text"] for word in words_of(text))
    return tuple(word for word, _ in counts.most_common(count))
