"""Make a code location of the policy, and materialize it in this process; `dagster dev -f dagster_job.py` shows it."""

from reviews import make

from dptext_etl.orchestration import build_definitions, materialize

policy = make()
defs = build_definitions(policy)

if __name__ == "__main__":
    summary = materialize(policy)
    for check in summary.checks:
        print(f"{check.asset}: {check.name} {'passed' if check.passed else check.severity}")
    print("published" if summary.success else "stopped")
