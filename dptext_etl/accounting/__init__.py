"""Account for privacy: events describe releases, and the accountant converts them to epsilon, delta, and rho."""

from dptext_etl.accounting.conversion import MEASURES as MEASURES
from dptext_etl.accounting.conversion import Approximate as Approximate
from dptext_etl.accounting.conversion import Composed as Composed
from dptext_etl.accounting.conversion import DividedDraws as DividedDraws
from dptext_etl.accounting.conversion import Event as Event
from dptext_etl.accounting.conversion import GaussianNoise as GaussianNoise
from dptext_etl.accounting.conversion import MetricClaim as MetricClaim
from dptext_etl.accounting.conversion import PureDraws as PureDraws
from dptext_etl.accounting.conversion import Unbounded as Unbounded
from dptext_etl.accounting.conversion import ZeroConcentrated as ZeroConcentrated
from dptext_etl.accounting.conversion import allocated_epsilon as allocated_epsilon
from dptext_etl.accounting.conversion import allocated_rho as allocated_rho
from dptext_etl.accounting.conversion import compose as compose
from dptext_etl.accounting.conversion import computed as computed
from dptext_etl.accounting.conversion import is_finite as is_finite
from dptext_etl.accounting.conversion import joint as joint
from dptext_etl.accounting.conversion import least as least
from dptext_etl.accounting.conversion import range_bounded as range_bounded
from dptext_etl.accounting.conversion import require_delta as require_delta
from dptext_etl.accounting.conversion import smallest_epsilon as smallest_epsilon
from dptext_etl.accounting.conversion import spend as spend
from dptext_etl.guarantee import log10_odds as log10_odds
