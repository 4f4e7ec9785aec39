"""How much stays known while a text is broken: every small mistake in realistic models, one after the other.

Every token of the texts (`texts`) is deleted, every bracket and quote put before each token, every line cut off before
each of its tokens, every indent taken, given and exchanged with the next line's. Each text is given to a `FileAnalysis`
that knows the right one, as an editor's is:

- nothing crashes (no TS900), and the right text afterwards is known as before;
- a text that parses is known as from scratch: the same findings, the same hints;
- of one that does not, no hint is lost but those of the broken statement and of what depends on it, and none differs
  from the right text's; its findings of TS101 are those from scratch, and there are no others that the right text lacks
  in what does not depend on the broken statement.

Then functions are typed at their places, character by character, with and without the closing brackets that editors
put in, and erased again: at each of these texts the same is asked for all that stands outside the function, and for
those of its lines that are finished.
"""
