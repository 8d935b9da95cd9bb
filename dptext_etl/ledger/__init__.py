"""Record what units were charged, in which releases, under which caps; SQLite by default."""

from dptext_etl.ledger.charges import PreparedBatch as PreparedBatch
from dptext_etl.ledger.ledger import Ledger as Ledger
from dptext_etl.ledger.ledger import PreparedCommit as PreparedCommit
from dptext_etl.ledger.reports import Remaining as Remaining
from dptext_etl.ledger.types import Anchor as Anchor
from dptext_etl.ledger.types import CapChange as CapChange
from dptext_etl.ledger.types import Charge as Charge
from dptext_etl.ledger.types import CommitOutcome as CommitOutcome
from dptext_etl.ledger.types import Committed as Committed
from dptext_etl.ledger.types import Event as Event
from dptext_etl.ledger.types import IdForms as IdForms
from dptext_etl.ledger.types import Outcome as Outcome
from dptext_etl.ledger.types import ReleaseRef as ReleaseRef
from dptext_etl.ledger.types import Scope as Scope
from dptext_etl.ledger.types import State as State
from dptext_etl.ledger.types import VerifyReport as VerifyReport
