-- Before `dptext ledger init`, as a superuser, in the database dptext: roles, and rights of the owner.
-- Give people and pipelines logins of their own, and one of these roles: GRANT dptext_writer TO etl;
CREATE ROLE dptext_owner NOLOGIN;
CREATE ROLE dptext_writer NOLOGIN;
CREATE ROLE dptext_steward NOLOGIN;
CREATE ROLE dptext_auditor NOLOGIN;

-- owner
GRANT CONNECT ON DATABASE "dptext" TO "dptext_owner";
CREATE SCHEMA IF NOT EXISTS "dptext_ledger" AUTHORIZATION "dptext_owner";
ALTER SCHEMA "dptext_ledger" OWNER TO "dptext_owner";
DO 'DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = ''dptext_ledger'' LOOP
    EXECUTE format(''ALTER TABLE %I.%I OWNER TO %I'', ''dptext_ledger'', name, ''dptext_owner'');
  END LOOP;
END';
