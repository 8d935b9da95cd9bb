"""The words of `docs/rewriting-again.md` that no measurement changes; its section without a model was measured once."""

from __future__ import annotations

INTRO = """# Rewriting again

Paper 002 asks whether it helps to write released texts anew with a model that was tuned on public texts which the
same mechanism privatised. It costs no budget ([rule](spec/privacy.md#rewrite-again)). Here {rows} rows of each of
three public sets, their first {longest} words, {draws} releases under keys of their own; written by `make
rewriting-again`.

* *ships* is `english-denoiser`, which never saw the mechanism. *tuned* is the same model after `dptext train rewriter
  --texts 3000 --words 20 --rate 5e-4 --longest 64` on utterances and Wikipedia, half of each, which the mechanism
  privatised; *tuned on 30,000* is one of ten times as many texts. `--tuned custext=FOLDER --tuned
  dp-mlm:30,000=FOLDER` takes them. All take the best token each time.
* *Perplexity* is that of a trigram model of public text, counts that no mechanism and no rewriter uses: another
  family than the networks that rewrite, over texts of the same corpora. Lower is more fluent, but a model that writes
  frequent words whatever it reads is fluent as well.
* *BLEU* and *cosine* compare with the raw text. *Static* and *adaptive* are attackers' accuracies at the attribute
  (four authors, age groups, gender; equally many of each): the static one learns from raw texts, the adaptive one
  from texts of the same kind that it attacks. In one column of {rows} rows an accuracy has a standard error of about
  3 points.

"""
WITHOUT_A_MODEL = """
## Without a model

A rewriter needs no network: counts of public words can choose among function words. This was tried, and does not ship.
Of the words of a release it replaced only articles and determiners, prepositions, conjunctions, auxiliaries and
pronouns (not *not*, *no*, *nor*, *never*, *without*, *against*), each by another one of its class, by the path that
`english-3gram` finds most likely (40 paths are kept). It moved, added and dropped no word. *Any* takes function words
of any class; *careful* changes a word only where that makes the text e⁴ times as likely.

500 rows of SST-2 and of Snips, three keys, the same release before and after. *Perplexity* is the ratio under trigram
counts of another corpus, film reviews (IMDb), which no mechanism and no rewriter used; `english-3gram` was counted in
Wikipedia and dialogues. *Accuracy* is that of the set's labels by the classifier of `dptext evaluate`, learnt from
released texts and tested on released, then on raw ones, in points; in brackets the standard error over keys.

| set | mechanism | rewriter | words changed | perplexity | accuracy | on raw texts | BLEU | cosine |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| SST-2 | CusText, ε = 2 | class | 13 % | 0.74 | -0.1 (1.3) | -0.5 (1.9) | 0.0 | -0.023 |
| SST-2 | CusText, ε = 2 | any | 15 % | 0.62 | +0.5 (1.4) | +0.2 (1.0) | 0.0 | -0.040 |
| SST-2 | CusText, ε = 2 | careful | 5 % | 0.82 | -0.4 (1.1) | -1.2 (0.7) | +0.1 | -0.005 |
| SST-2 | DP-MLM, ε = 50 | class | 36 % | 0.68 | +1.7 (1.1) | -0.1 (1.1) | -16.4 | -0.129 |
| SST-2 | DP-MLM, ε = 50 | any | 45 % | 0.36 | +1.3 (0.9) | +1.7 (1.1) | -19.8 | -0.184 |
| SST-2 | DP-MLM, ε = 50 | careful | 7 % | 0.81 | -2.4 (0.8) | -0.1 (0.1) | -3.7 | -0.021 |
| Snips | CusText, ε = 2 | class | 11 % | 0.81 | -2.7 (1.2) | -9.7 (0.7) | +0.1 | -0.021 |
| Snips | CusText, ε = 2 | any | 12 % | 0.67 | -2.3 (1.0) | -4.9 (2.0) | +0.1 | -0.030 |
| Snips | CusText, ε = 2 | careful | 5 % | 0.85 | -1.6 (0.9) | -3.3 (0.2) | +0.1 | -0.003 |
| Snips | DP-MLM, ε = 50 | class | 28 % | 0.74 | -2.3 (0.4) | -0.8 (0.5) | -22.2 | -0.135 |
| Snips | DP-MLM, ε = 50 | any | 33 % | 0.46 | -4.2 (0.5) | -2.3 (0.5) | -26.2 | -0.172 |
| Snips | DP-MLM, ε = 50 | careful | 4 % | 0.89 | -0.7 (0.4) | 0.0 (0.2) | -3.7 | -0.017 |

Every one reads better to the counts, and every one lowers something that users need: which preposition or pronoun a
request has says what it asks for (Snips loses up to 10 points), and DP-MLM mostly had the right function words before.
"""
OPEN = """
## What this leaves open

The rewriters have 1.6 million weights and were trained for minutes; paper 002 tunes Flan-T5-large (780 million) on
100,000 texts. A large model knows what a sentence should say, and may repair meaning where these put frequent words in
order. The question is answered for small models alone: with yours, run `dptext evaluate` before and after on a public
set like your data.
"""
CONCLUSION = """A release that is more fluent and less near to its text has gained form, not meaning: a perplexity
below that of the raw texts is one of frequent words in order. For DP-MLM, tuning lessens the damage, and ten times as
many texts lessen it further; not to rewrite at all is nearer still. So no tuned rewriter ships. With six releases, a
change exceeds two standard errors by chance in one line of ten.
"""
