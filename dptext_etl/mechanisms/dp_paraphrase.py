"""DP-Paraphrase: a causal model trained on pairs of sentences continues the text by a paraphrase, drawn exactly.

Paper: Mattern, Weggenmann and Kerschbaum 2022, "The Limits of Word Level Differential Privacy" (section 4), as paper
000 runs it: GPT-2 fine-tuned on 161,028 entailment pairs of SNLI, the text and " >>>>> " as the prompt. `dptext train
paraphraser` fine-tunes any causal model on public pairs. Where the published code is wrong
(docs/spec/privacy.md#generative-defects), this differs:

* It leaves the library's top 50 tokens in force: what can be drawn depends on the text, and epsilon is infinite.
* It cuts the prompt out of the answer as a string, which leaves the raw text in it wherever tokens do not spell it
  back. Here an answer is made of drawn tokens alone.
* It bounds the answer by the length of the text, as faithful mode does: the number of tokens is disclosed.
"""

from __future__ import annotations

from typing import ClassVar, Self

from dptext_etl.families.score.generative import GenerativeMechanism


class DPParaphrase(GenerativeMechanism):
    """DP-Paraphrase (Mattern et al. 2022): paraphrases by a fine-tuned causal model.

    Attributes:
        epsilon: Per drawn token; a text costs l_max times as much.
        model: A causal model that continues the template by a paraphrase and its end token: a folder that
            `dptext train paraphraser` wrote. GPT-2 as it is on the hub has not learnt to.
        template: As the model was trained.

    Example:
        >>> mechanism = DPParaphrase.example()
        >>> mechanism.guarantee.guarantee_class.value, mechanism.most_positions
        ('PURE_LDP', 4)
    """

    continues: ClassVar[bool] = True
    model_source: ClassVar[str] = (
        "train one on public pairs of sentences, `dptext train paraphraser --pairs FILE --base gpt2 --out FOLDER`, and "
        "give it: -p model=FOLDER"
    )
    default_limit: ClassVar[int] = 1024

    template: str = "{text} >>>>> "

    @classmethod
    def example(cls) -> Self:
        """Four tokens by a tiny random GPT-2: random words, as its weights are."""
        return cls(epsilon=20.0, l_max=4, model="example-causal")
