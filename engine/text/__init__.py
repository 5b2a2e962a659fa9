"""Text in and out of tokens: tokenizer, chat template, streaming detokenizer, stop strings."""
