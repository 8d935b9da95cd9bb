"""The text of `studies/reports/allocation.md`; `allocation_utility.py` fills in the figures."""

PAGE = """<!-- written by `make -C studies allocation-utility` (studies/allocation_utility.py): do not edit -->
# Dividing one budget among words

The field `allocation` of a mechanism gives a text one budget E and divides it among the words. Scores say which words need protection.
These words get less epsilon, so more noise. [Paper 001](#errors-of-the-paper) proposes the method, and
[Theorem A](../../docs/spec/privacy.md#theorem-a) says when it is sound: a release costs E, whatever the scores are. The epsilons of the words are
never released, because they depend on the text.

```sh
dptext preview custext --allocation ic,pos,ner,wi,sd --epsilon 60
```

```toml
mechanism = { name = "custext", allocation = { scores = ["ic", "pos", "ner"], total = 60.0 } }
```

## The scores

Each score gives every word of a text a number from 0 to 1. No word is exempt: punctuation, numbers, and addresses get a score, too.

| score | 1 means | default tool | other tools |
| --- | --- | --- | --- |
| `ic` | rare in public text: −log p, divided by the value of the rarest word | counts of 20,000 words | `information = "wordnet:FOLDER"`: WordNet and its counts, in NLTK's data |
| `pos` | a class of words with a large weight: verbs 15, nouns 14, pronouns 7, adjectives and adverbs 5, numbers 2, others 0.1 | a small tagger, run by NLTK | `tagger = "nltk:FOLDER"`, or `"spacy:NAME"` |
| `ner` | part of a name (here: proper nouns, and words with a digit or an @) | the same tagger | `tagger = "spacy:NAME"`: the entities of any pipeline |
| `wi` | unlike the rest of the text: 1 − cosine | the encoder of `everyday-30k` | `encoder = "sentence-transformers:FOLDER"` |
| `sd` | the text changes much without the word: 1 − cosine | the same encoder | the same |
| `keybert` | close to the whole text: its cosine, over the largest | the same encoder | the same |
| `yake` | a key word by YAKE's features: place, frequency, neighbors, case | the text itself | |
| `attention` | other words of the text attend to it | `english-small` | the folder of `encoder` |

The scores of a word are averaged to s, at least 10⁻⁶. The share of the word is proportional to 1/s. It is at least `eps_lo` (by default a
tenth of an even share) and at most `eps_hi` (by default four even shares), in whole millionths, rounded down. The shares add up to at most
E. Nothing is downloaded. The configuration identifies a tool by the hash of its files. To add a score, add a file to
`dptext_etl/allocation/scores/`, or an entry point of a package of yours. All scores except `ic` come with `dptext_etl_models`. The
ablation of the paper leaves out one of its five scores: `scores = ["ic", "pos", "ner", "wi"]`.

## The example of the paper

"The quick brown fox jumps over the lazy dog", E = 9:

[[figure]]

## Errors of the paper

* **The rule.** "Solve Ax = b" is one equation with n unknowns, and Σ A·x = b is not Σ x = b. The rule above is the rule
  of the paper's code.
* **Information content** comes from files of *counts* (the paper's example: "IC('dog') = 235"). So frequent words appear to be the most
  informative, and unknown names the least. This is the wrong way round. All words except nouns and verbs count as harmless. Here the score
  is −log p, for all words, and a word without a count gets the highest score.
* **Named entities** never count: the code asks `if 1 in ner_scores` of a list of pairs, and looks up spaCy's tokens by the positions of
  NLTK's tokens. The ablation "without NER" measured noise.
* **Algorithm 3** (`sd`) prints the cosine, but the text asks for 1 − cosine. **Algorithm 2** (`wi`) agrees with the text, but the code
  uses |cosine of the word and the whole text|, which is the opposite. `printed = true` uses the printed formulas, and `printed = "code"`
  the parameters of the published code. Both need the counts of WordNet for `ic`: Algorithm 1 uses the largest count of a word's senses as a noun
  or a verb, or 1, and the mean over five corpora; the code uses the mean over all senses, looks all of them up as nouns, and counts
  missing ones as 0. Of the five corpora, those in the folder of NLTK's data are used; the last two rows above have only Brown.
* **Exempt words.** A token with other characters than letters and digits ("n't", "$5.00", an e-mail address, a phone number, "fair-trade")
  gets no epsilon and is released unchanged. So are stopwords. Here every word is drawn.
* **A score of zero** becomes a weight of 4·10³⁰⁵, so the word uses the whole budget. Here s ≥ 10⁻⁶, and `eps_hi` limits the share.
* **The budget** is epsilon times the *average length of the private data set*, which is a private statistic. Here E is a constant in the
  policy. (The row for BBC uses 399.94 and prints 399.34.)
* **The mechanisms.** The paper divides budgets of 1-Diffractor's geometric mechanism and, per sentence, of DP-BART. If the text itself
  divides these budgets, there is [no finite guarantee](../../docs/spec/privacy.md#allocation-by-mechanism), and strict mode refuses it. Faithful
  mode runs it for benchmarks, with class NONE, which is never published. A fixed template, a chosen template, and a first release [may divide them](../../docs/spec/privacy.md#allocation-noise).
* **The gains.** The baseline F1 is accuracy for the models and positive-class F1 for the majority, so on Yelp a *loss* of utility raises
  the relative gain. Two cells are misprints: Yelp, ε = 1, naive, static is 0.705 (printed 0.19); Trustpilot, ε = 1, naive, static is 0.725
  (printed 1.34). With baselines of one kind, "ours" is better in 3 of 12 cells on Yelp, not in 11
  ([how](../../docs/spec/privacy.md#known-relative-gain)).

## What dividing brings

Measured by `make -C studies allocation-utility` on public data. [[when]] The even division and the scores get the same E per text.
E is a constant: an epsilon per word times a public mean length. Texts have at least five words, and longer texts are cut after the first
[[longest]] words. Each figure is the mean over three keys ± half the range.

* *words kept*: the share of words that stay unchanged
* *label learned*: macro-F1 on raw texts, in five folds, of the learner of `dptext evaluate`, which learns from released texts
* *label read*: macro-F1 on released texts of the same learner, which learned from other raw texts
* *author*, *site*: macro-F1 of an [adaptive attacker](../../docs/evidence.md), who learns from releases with their secrets
* *text found*: the share of releases whose own raw text ranks first among all raw texts

"Better" and "worse" count the cells in which the figures of one division do not overlap with figures of the other.

### CusText

[[custext]]

### One score only

CusText, one budget per data set.

[[single]]

`pos` or `sd` by itself gives most of E to a few words, such as articles and prepositions, which need far less to stay unchanged. `eps_hi` even
leaves a part of E unspent. So these scores protect by spending little on all other words, not by knowing which words reveal the author.

### DP-MLM

`english-small`, all words at once (`decoding = "parallel"`): a small model and few texts.

[[dpmlm]]

## Conclusion

[[conclusion]]

Two more costs: rho of a divided budget is at most ε_max·E/8. With `eps_hi` at four even shares, this is four times the rho of the even
division ([the loss](../../docs/spec/privacy.md#allocation-zcdp)), so several releases of one person compose worse. Scores also need about
1.5 ms of a CPU per short text.
"""
