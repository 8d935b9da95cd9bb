"""DP-Paraphrase draws a paraphrase token by token from a causal model that was trained on pairs of sentences.

Paper: Mattern, Weggenmann and Kerschbaum 2022, "The Limits of Word Level Differential Privacy" (section 4).
Meisenbacher et al. 2024 run it with GPT-2, fine-tuned on 161,028 entailment pairs of SNLI, and the prompt is the text
and " >>>>> ". `dptext train paraphraser` fine-tunes any causal model on public pairs. The published code has defects
(docs/spec/privacy.md#generative-defects), which this mechanism avoids:

* The code keeps the library's filter of the top 50 tokens. So the set of possible tokens depends on the text, and
  epsilon is infinite.
* The code removes the prompt from the answer as a string, which leaves the raw text in the answer if its tokens do not
  spell it exactly. Here an answer consists only of drawn tokens.
* The code bounds the answer by the length of the text, as faithful mode does, which discloses the number of tokens.
"""

from __future__ import annotations

from typing import ClassVar, Self

from dptext_etl_models.families.generative import GenerativeMechanism


class DPParaphrase(GenerativeMechanism):
    """DP-Paraphrase (Mattern et al. 2022): paraphrases by a fine-tuned causal model.

    Attributes:
        epsilon: Epsilon per drawn token; a text costs l_max times as much.
        model: A folder of `dptext train paraphraser`. The GPT-2 on the hub was not trained for this.
        template: Prompt with which the model was trained.

    Example:
        >>> mechanism = DPParaphrase.example()
        >>> mechanism.guarantee.guarantee_class.value, mechanism.most_positions
        ('PURE_LDP', 4)
    """

    continues: ClassVar[bool] = True
    small_model: ClassVar[str | None] = "english-paraphraser"
    model_source: ClassVar[str] = (
        "train one on public pairs of sentences with `dptext train paraphraser --pairs FILE --base gpt2 --out FOLDER`, "
        "and name it: -p model=FOLDER"
    )
    default_limit: ClassVar[int] = 1024

    model: str = "english-paraphraser"
    template: str = "{text} >>>>> "

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with four tokens and a tiny random GPT-2, which writes random words."""
        return cls(epsilon=20.0, l_max=4, model="example-causal")
