"""Record what units were charged, in which releases, under which caps; SQLite by default."""

from dptext_etl.ledger.audit.remaining import Remaining as Remaining
from dptext_etl.ledger.ledger import Ledger as Ledger
from dptext_etl.ledger.operations.batch import Ready as Ready
from dptext_etl.ledger.operations.cap_change import CapChange as CapChange
from dptext_etl.ledger.operations.commit import ToCommit as ToCommit
from dptext_etl.ledger.terms import Anchor as Anchor
from dptext_etl.ledger.terms import Charge as Charge
from dptext_etl.ledger.terms import CommitOutcome as CommitOutcome
from dptext_etl.ledger.terms import Committed as Committed
from dptext_etl.ledger.terms import Event as Event
from dptext_etl.ledger.terms import IdForms as IdForms
from dptext_etl.ledger.terms import Outcome as Outcome
from dptext_etl.ledger.terms import ReleaseRef as ReleaseRef
from dptext_etl.ledger.terms import ReserveResult as ReserveResult
from dptext_etl.ledger.terms import Scope as Scope
from dptext_etl.ledger.terms import State as State
from dptext_etl.ledger.terms import VerifyReport as VerifyReport
