"""The text of `studies/reports/rewriting-again.md` that no measurement changes.

Its section without a model was measured once.
"""

from __future__ import annotations

INTRO = """# Rewriting again

Paper 002 asks whether it helps to rewrite released texts with a model that was tuned on public texts that the same
mechanism privatized. Rewriting costs no budget ([rule](../../docs/spec/privacy.md#rewrite-again)). This page measures
it on {rows} rows of each of three public sets, cut after the first {longest} words, with {draws} releases under
separate keys. `make -C studies rewriting-again` writes it.

* *ships* is `english-denoiser`, which never saw the mechanism. *tuned* is the same model after `dptext train rewriter
  --texts 3000 --words 20 --rate 5e-4 --longest 64` on utterances and Wikipedia, half of each, which the mechanism
  privatized. *tuned on 30,000* used ten times as many texts. To measure your own, pass `--tuned custext=FOLDER
  --tuned dp-mlm:30,000=FOLDER`. All models use the most likely token each time.
* *Perplexity* is computed by a trigram model of public text, which no mechanism or rewriter uses; it differs in kind
  from the networks that rewrite, but it was counted in texts of the same corpora. Lower is more fluent. A
  model that writes frequent words for any input is fluent, too.
* *BLEU* and *cosine* compare with the raw text. *Static* and *adaptive* are the accuracies of attackers who guess an
  attribute (four authors, age groups, or gender, each value equally often). The static attacker learns from raw
  texts, the adaptive one from texts of the kind that it attacks. In one column of {rows} rows, an accuracy has a
  standard error of about 3 points.

"""
WITHOUT_A_MODEL = """
## Without a model

A rewriter needs no network. Counts of public words can choose among function words. We measured this, and it does not
ship. It replaced only articles and determiners, prepositions, conjunctions, auxiliaries, and pronouns (but not *not*,
*no*, *nor*, *never*, *without*, *against*) by other words of the same class, along the path that `english-3gram`
finds most likely among 40. It moved, added, and dropped no word. *Any* uses function words of any class. *Careful*
changes a word only if that makes the text e⁴ times as likely.

The figures are for 500 rows of SST-2 and of Snips, with three keys, for the same release before and after.
*Perplexity* is the ratio under trigram counts of another corpus, film reviews (IMDb), which no mechanism and no
rewriter used. (`english-3gram` was counted in Wikipedia and dialogues.) *Accuracy* (points) is accuracy on the set's
labels by the classifier of `dptext evaluate`, which learned from released texts. It is tested on released texts, then
on raw texts. Brackets hold the standard error over keys.

| set | mechanism | rewriter | words changed | perplexity | accuracy | on raw texts | BLEU | cosine |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| SST-2 | CusText, ε = 2 | class | 13% | 0.74 | -0.1 (1.3) | -0.5 (1.9) | 0.0 | -0.023 |
| SST-2 | CusText, ε = 2 | any | 15% | 0.62 | +0.5 (1.4) | +0.2 (1.0) | 0.0 | -0.040 |
| SST-2 | CusText, ε = 2 | careful | 5% | 0.82 | -0.4 (1.1) | -1.2 (0.7) | +0.1 | -0.005 |
| SST-2 | DP-MLM, ε = 50 | class | 36% | 0.68 | +1.7 (1.1) | -0.1 (1.1) | -16.4 | -0.129 |
| SST-2 | DP-MLM, ε = 50 | any | 45% | 0.36 | +1.3 (0.9) | +1.7 (1.1) | -19.8 | -0.184 |
| SST-2 | DP-MLM, ε = 50 | careful | 7% | 0.81 | -2.4 (0.8) | -0.1 (0.1) | -3.7 | -0.021 |
| Snips | CusText, ε = 2 | class | 11% | 0.81 | -2.7 (1.2) | -9.7 (0.7) | +0.1 | -0.021 |
| Snips | CusText, ε = 2 | any | 12% | 0.67 | -2.3 (1.0) | -4.9 (2.0) | +0.1 | -0.030 |
| Snips | CusText, ε = 2 | careful | 5% | 0.85 | -1.6 (0.9) | -3.3 (0.2) | +0.1 | -0.003 |
| Snips | DP-MLM, ε = 50 | class | 28% | 0.74 | -2.3 (0.4) | -0.8 (0.5) | -22.2 | -0.135 |
| Snips | DP-MLM, ε = 50 | any | 33% | 0.46 | -4.2 (0.5) | -2.3 (0.5) | -26.2 | -0.172 |
| Snips | DP-MLM, ε = 50 | careful | 4% | 0.89 | -0.7 (0.4) | 0.0 (0.2) | -3.7 | -0.017 |

All variants look better to the trigram counts, and all lower something that users need. The prepositions and pronouns
of a request decide its meaning, so Snips loses up to 10 points. DP-MLM mostly had the right function words before.
"""
OPEN = """
## What remains open

The rewriters have 1.6 million weights and were trained for minutes. Paper 002 tunes Flan-T5-large (780 million
weights) on 100,000 texts. A large model knows the likely meaning of a sentence and may repair meaning, where these
small models only put frequent words in order. So this page answers the question only for small models. To test your
model, run `dptext evaluate` before and after rewriting, on a public set that is similar to your data.
"""
CONCLUSION = """\
A release that became more fluent but less similar to its text gained form, not meaning. A lower perplexity than of
the raw texts means frequent words in order. For DP-MLM, tuning reduces the damage, and ten times as many texts reduce
it further, but texts that are not rewritten are still more similar. So no tuned rewriter ships. With six releases,
one line in ten exceeds two standard errors by chance.
"""
