"""The extractive backend: real work on text, deterministic and without a model.

Retrieval is BM25 (rank-bm25), similarity is TF-IDF cosine (scikit-learn), words are stemmed by Snowball
(snowballstemmer), syllables are counted with Pyphen. Every sentence that it writes stands in a source.

The shapes that jobs exchange:

- *source*: ``{"id", "title", "path", "line", "text"}``; ``line`` is the number of the text's first line.
- *passage*: ``{"n", "source_id", "title", "path", "line", "end_line", "quote", "score"}``; ``quote`` is an
  exact piece of the source's text.
- *draft*: ``{"title", "question", "summary": [sentence], "sections": [{"heading", "sentences": [sentence]}],
  "references": [passage without score]}`` with *sentence*: ``{"text", "citations": [n]}``.
- *finding*: ``{"code", "message"}``, with ``"sentence"`` or ``"term"`` where one is meant.
"""
