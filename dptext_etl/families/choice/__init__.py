"""Replace a whole text by a public text that is drawn near it."""

from dptext_etl.families.choice.choice import ChoiceMechanism as ChoiceMechanism
