"""The words of `docs/allocation.md`; `allocation_utility.py` puts the figures into them."""

PAGE = """<!-- written by `make -C studies allocation-utility` (studies/allocation_utility.py): do not edit -->
# One budget, divided among words

A text gets one budget E, and some of its words get more of it than others: `allocation` of a mechanism. Scores say which
words need protection; these get less epsilon, so more noise. [Paper 001](#what-the-paper-gets-wrong) proposes it, and
[Theorem A](spec/privacy.md#theorem-a) says when it is sound: a release costs E, whatever the scores say. What each word
got is never released: it tells of the text.

```sh
dptext explain custext --allocation ic,pos,ner,wi,sd --total 60
dptext preview custext --allocation ic,pos --epsilon 60
```

```toml
mechanism = { name = "custext", allocation = { scores = ["ic", "pos", "ner"], total = 60.0 } }
```

## The scores

Each gives every word of a text a number from 0 to 1. None is exempt: no mark, number or address.

| score | 1 means | tool that comes with the library | instead |
| --- | --- | --- | --- |
| `ic` | rare in public text: −log p over that of the rarest | counts of 20,000 words | `information = "wordnet:FOLDER"`: WordNet and its counts, in NLTK's data |
| `pos` | a class of words with a large weight: verbs 15, nouns 14, pronouns 7, adjectives and adverbs 5, numbers 2, others 0.1 | a small tagger, run by NLTK | `tagger = "nltk:FOLDER"`, or `"spacy:NAME"` |
| `ner` | part of a name (here: proper nouns, and words with a digit or an @) | the same tagger | `tagger = "spacy:NAME"`: the entities of any pipeline |
| `wi` | unlike the rest of the text: 1 − cosine | the encoder of `everyday-30k` | `encoder = "sentence-transformers:FOLDER"` |
| `sd` | the text without the word is another one: 1 − cosine | the same encoder | the same |

The scores of a word are averaged to s, at least 10⁻⁶. Its part of E is in proportion to 1/s, from `eps_lo` (a tenth of
an even share) to `eps_hi` (four even shares), in whole millionths, rounded down; the parts add up to E at most. Nothing
is downloaded. A tool is named in the configuration by the hash of its files. A further score is one more file in
`dptext_etl/allocation/scores/`.

## The figure of the paper

"The quick brown fox jumps over the lazy dog", E = 9:

[[figure]]

## What the paper gets wrong

* **The rule.** "Solve Ax = b" is one equation with n unknowns, and Σ A·x = b is not Σ x = b. The rule above is what its
  code does.
* **Information content** is taken from files of *counts* (its own example: "IC('dog') = 235"). So frequent words look
  most telling, and unknown names least: the wrong way round. All but nouns and verbs count as harmless. Here it is
  −log p, of all words; a word that no count knows tells most.
* **Named entities** never count: the code asks `if 1 in ner_scores` of a list of pairs, and looks up spaCy's tokens by
  the places of NLTK's. An ablation "without NER" measured noise.
* **Algorithm 3** (`sd`) prints the cosine, the text asks for 1 − cosine. **Algorithm 2** (`wi`) agrees with its text,
  and its code takes |cosine of word and whole text|, the other way round. `printed = true` takes the printed formulas.
* **Exempt words.** Whatever is not letters and digits alone ("n't", "$5.00", an e-mail address, a phone number,
  "fair-trade") gets no epsilon and is released as it is. So are stopwords. Here every word is drawn.
* **A score of zero** becomes a weight of 4·10³⁰⁵: the word takes the whole budget. Here s ≥ 10⁻⁶ and `eps_hi`.
* **The budget** is epsilon times the *average length of the private data set*, which is a private statistic. Here E is
  a literal in the policy. (Its row for BBC uses 399.94 and prints 399.34.)
* **The mechanisms.** It divides budgets of 1-Diffractor's geometric mechanism and of DP-BART per sentence. For both
  there is [no finite guarantee](spec/privacy.md#allocation-by-mechanism) if the text itself divides them: that is refused
  here. A template, a chosen one and a first release [may divide them](spec/privacy.md#allocation-noise).
* **The gains.** Its baseline F1 is accuracy for the models and positive-class F1 for the majority, so that on Yelp a
  *loss* of use raises its relative gain. Two cells are misprints: Yelp, ε = 1, naive, static is 0.705 (printed 0.19);
  Trustpilot, ε = 1, naive, static is 0.725 (printed 1.34). With baselines of one kind, "ours" is better in 3 of 12
  cells on Yelp, not in 11 ([how](spec/privacy.md#known-relative-gain)).

## What dividing brings

Measured by `make -C studies allocation-utility` on public data. [[when]] The even division and the scores get the same E per text;
E is a literal: an epsilon per word times a public mean length. Texts have five words or more; of longer ones the first
[[longest]] words are taken. Three keys each: means ± half the range.

* *words kept*: the share of words that stay as they were;
* *label learned*: macro-F1 on raw texts, in five folds, of the learner of `dptext evaluate`, which learns from released texts;
* *label read*: macro-F1 on released texts of the same learner, which learned from other raw texts;
* *author*, *site*: macro-F1 of an [adaptive attacker](evidence.md), who learns from releases with their secrets;
* *text found*: the share of releases whose own raw text comes first among all raw texts.

"Better" and "worse" count cells in which no figure of one division lies among those of the other.

### CusText

[[custext]]

### One score alone

CusText, one budget per data set.

[[alone]]

`pos` and `sd` alone move most of E to a few words, articles and prepositions, which need far less to stay as they are;
`eps_hi` even leaves a part of E unspent. So they hide much by spending little on all other words, not by knowing which
words tell who wrote them.

### DP-MLM

`english-small`, all words at once (`decoding = "parallel"`): a small model, and few texts.

[[dpmlm]]

## What follows

[[conclusion]]

Beside these figures: rho of a divided budget is at most ε_max·E/8, with `eps_hi` at four even shares four times that of
the even division ([what is lost](spec/privacy.md#allocation-zcdp)); so many releases of one person compose worse. And
scores cost time: about 1.5 ms of a CPU per short text.
"""
