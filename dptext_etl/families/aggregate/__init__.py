"""Release one noisy statistic of a column, and draw public texts from it (docs/spec/synthetic.md#release)."""

from dptext_etl.families.aggregate.classifier import Classifier as Classifier
from dptext_etl.families.aggregate.classifier import linear_discriminant as linear_discriminant
from dptext_etl.families.aggregate.contributions import Noisy as Noisy
from dptext_etl.families.aggregate.contributions import Partial as Partial
from dptext_etl.families.aggregate.contributions import Topic as Topic
from dptext_etl.families.aggregate.contributions import added as added
from dptext_etl.families.aggregate.contributions import counted as counted
from dptext_etl.families.aggregate.contributions import noisy as noisy
from dptext_etl.families.aggregate.contributions import partial_sum as partial_sum
from dptext_etl.families.aggregate.contributions import read_statistic as read_statistic
from dptext_etl.families.aggregate.max_entropy import scored as scored
from dptext_etl.families.aggregate.max_entropy import table as table
from dptext_etl.families.aggregate.statistic import Statistic as Statistic
from dptext_etl.families.aggregate.statistic import describe as describe
