-- After `dptext ledger init` and after each upgrade, as its owner or a superuser: it can be repeated.
-- writer
GRANT CONNECT ON DATABASE "dptext" TO "dptext_writer";
GRANT USAGE ON SCHEMA "dptext_ledger" TO "dptext_writer";
REVOKE ALL ON ALL TABLES IN SCHEMA "dptext_ledger" FROM "dptext_writer";
GRANT SELECT ON ALL TABLES IN SCHEMA "dptext_ledger" TO "dptext_writer";
GRANT INSERT ON "dptext_ledger".event TO "dptext_writer";
GRANT INSERT, UPDATE (seq), DELETE ON "dptext_ledger".segment TO "dptext_writer";
ALTER TABLE "dptext_ledger".segment ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS dptext_select ON "dptext_ledger".segment;
CREATE POLICY dptext_select ON "dptext_ledger".segment FOR SELECT USING (true);
DROP POLICY IF EXISTS dptext_insert ON "dptext_ledger".segment;
CREATE POLICY dptext_insert ON "dptext_ledger".segment FOR INSERT WITH CHECK (seq < 0);
DROP POLICY IF EXISTS dptext_update ON "dptext_ledger".segment;
CREATE POLICY dptext_update ON "dptext_ledger".segment FOR UPDATE USING (seq < 0) WITH CHECK (seq = (SELECT max(seq) FROM "dptext_ledger".event));
DROP POLICY IF EXISTS dptext_delete ON "dptext_ledger".segment;
CREATE POLICY dptext_delete ON "dptext_ledger".segment FOR DELETE USING (seq < 0);
ALTER TABLE "dptext_ledger".event ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS dptext_select ON "dptext_ledger".event;
CREATE POLICY dptext_select ON "dptext_ledger".event FOR SELECT USING (true);
DROP POLICY IF EXISTS dptext_insert ON "dptext_ledger".event;
CREATE POLICY dptext_insert ON "dptext_ledger".event FOR INSERT WITH CHECK (has_table_privilege('"dptext_ledger".meta', 'UPDATE') OR CASE WHEN kind = 'CAP_SET' THEN NOT EXISTS (SELECT FROM "dptext_ledger".event AS earlier WHERE (earlier.kind = 'CAP_SET' AND earlier.body::jsonb->'name' = event.body::jsonb->'name' AND earlier.body::jsonb->'period' = event.body::jsonb->'period') OR (earlier.kind = 'RESERVE' AND earlier.body::jsonb->'scope' <> event.body::jsonb->'scope' AND (earlier.body::jsonb->'name' = event.body::jsonb->'name' OR earlier.body::jsonb->'dataset' = event.body::jsonb->'dataset'))) ELSE kind NOT IN ('THAW', 'UNITS', 'READMIT') END);

-- steward
GRANT CONNECT ON DATABASE "dptext" TO "dptext_steward";
GRANT USAGE ON SCHEMA "dptext_ledger" TO "dptext_steward";
REVOKE ALL ON ALL TABLES IN SCHEMA "dptext_ledger" FROM "dptext_steward";
GRANT SELECT ON ALL TABLES IN SCHEMA "dptext_ledger" TO "dptext_steward";
GRANT INSERT ON "dptext_ledger".event TO "dptext_steward";
GRANT INSERT, UPDATE (seq), DELETE ON "dptext_ledger".segment TO "dptext_steward";
GRANT UPDATE ON "dptext_ledger".meta TO "dptext_steward";
ALTER TABLE "dptext_ledger".segment ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS dptext_select ON "dptext_ledger".segment;
CREATE POLICY dptext_select ON "dptext_ledger".segment FOR SELECT USING (true);
DROP POLICY IF EXISTS dptext_insert ON "dptext_ledger".segment;
CREATE POLICY dptext_insert ON "dptext_ledger".segment FOR INSERT WITH CHECK (seq < 0);
DROP POLICY IF EXISTS dptext_update ON "dptext_ledger".segment;
CREATE POLICY dptext_update ON "dptext_ledger".segment FOR UPDATE USING (seq < 0) WITH CHECK (seq = (SELECT max(seq) FROM "dptext_ledger".event));
DROP POLICY IF EXISTS dptext_delete ON "dptext_ledger".segment;
CREATE POLICY dptext_delete ON "dptext_ledger".segment FOR DELETE USING (seq < 0);
ALTER TABLE "dptext_ledger".event ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS dptext_select ON "dptext_ledger".event;
CREATE POLICY dptext_select ON "dptext_ledger".event FOR SELECT USING (true);
DROP POLICY IF EXISTS dptext_insert ON "dptext_ledger".event;
CREATE POLICY dptext_insert ON "dptext_ledger".event FOR INSERT WITH CHECK (has_table_privilege('"dptext_ledger".meta', 'UPDATE') OR CASE WHEN kind = 'CAP_SET' THEN NOT EXISTS (SELECT FROM "dptext_ledger".event AS earlier WHERE (earlier.kind = 'CAP_SET' AND earlier.body::jsonb->'name' = event.body::jsonb->'name' AND earlier.body::jsonb->'period' = event.body::jsonb->'period') OR (earlier.kind = 'RESERVE' AND earlier.body::jsonb->'scope' <> event.body::jsonb->'scope' AND (earlier.body::jsonb->'name' = event.body::jsonb->'name' OR earlier.body::jsonb->'dataset' = event.body::jsonb->'dataset'))) ELSE kind NOT IN ('THAW', 'UNITS', 'READMIT') END);

-- auditor
GRANT CONNECT ON DATABASE "dptext" TO "dptext_auditor";
GRANT USAGE ON SCHEMA "dptext_ledger" TO "dptext_auditor";
REVOKE ALL ON ALL TABLES IN SCHEMA "dptext_ledger" FROM "dptext_auditor";
GRANT SELECT ON ALL TABLES IN SCHEMA "dptext_ledger" TO "dptext_auditor";
