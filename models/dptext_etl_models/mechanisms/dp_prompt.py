"""DP-Prompt asks an encoder-decoder for a paraphrase of the text, and draws the answer token by token.

Paper: Utpala, Hooker and Chen 2023, "Locally Differentially Private Document Generation Using Zero Shot Prompting"
(section 3); Meisenbacher et al. 2024 and Meisenbacher and Matthes 2024 compare with it. No training is needed: any T5,
Flan-T5, mT5 or BART works. The published code has defects (docs/spec/privacy.md#generative-defects), which this
mechanism avoids:

* The code never clips the scores of its open models, uses the range from observed scores, and samples in half
  precision, so no epsilon holds. Here the clip range is public, the clip is the last step, and draws are exact.
* Epsilon is per drawn token. At temperature 1.5 over the range (-95, 8), 100 tokens cost 13,733, not 137.
* In faithful mode the answer may be as long as the prompt, as in Meisenbacher et al. 2024, which discloses the number
  of its tokens.
"""

from __future__ import annotations

from typing import ClassVar, Self

from dptext_etl_models.families.generative import GenerativeMechanism


class DPPrompt(GenerativeMechanism):
    r"""DP-Prompt (Utpala et al. 2023): zero-shot paraphrases by an encoder-decoder.

    Attributes:
        epsilon: Epsilon per drawn token; a text costs l_max times as much.
        model: Flan-T5 of any size, or another encoder-decoder that follows instructions.
        template: Prompt of the model; "\n" are line breaks.

    Example:
        >>> mechanism = DPPrompt.example()
        >>> mechanism.spend(mechanism.l_max).epsilon
        80.0
    """

    continues: ClassVar[bool] = False
    small_model: ClassVar[str | None] = "english-denoiser"
    model_source: ClassVar[str] = "download it on a machine with a network: `hf download google/flan-t5-base` (1 GB)"
    default_limit: ClassVar[int] = 512

    model: str = "google/flan-t5-base"
    template: str = "Document : {text}\nParaphrase of the document :"

    @classmethod
    def example(cls) -> Self:
        """Return the mechanism with four tokens and a tiny random T5, which writes random words."""
        return cls(epsilon=20.0, l_max=4, model="example-seq2seq")
