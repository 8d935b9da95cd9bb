CREATE SCHEMA frozen;
CREATE TABLE frozen.batch (
    seq bigint NOT NULL,
    release bigint NOT NULL,
    nonce bigint NOT NULL,
    scope bigint NOT NULL,
    job text NOT NULL,
    rows bigint NOT NULL,
    open bigint NOT NULL,
    attached bigint DEFAULT 0 NOT NULL,
    state bytea NOT NULL
);
ALTER TABLE ONLY frozen.batch ALTER COLUMN state SET STORAGE EXTERNAL;
CREATE TABLE frozen.burnt (
    dataset text NOT NULL,
    release text NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE frozen.commit_part (
    batch bigint NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE frozen.event (
    seq bigint NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    hash bytea NOT NULL
);
CREATE TABLE frozen.frozen (
    dataset text NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE frozen.member (
    scope bigint NOT NULL,
    dataset text NOT NULL
);
CREATE TABLE frozen.meta (
    name text NOT NULL,
    value text NOT NULL
);
CREATE TABLE frozen.publication (
    release bigint NOT NULL,
    nonce bigint NOT NULL,
    version text NOT NULL,
    manifest text NOT NULL,
    rows bigint NOT NULL
);
CREATE TABLE frozen.release (
    id bigint NOT NULL,
    dataset text NOT NULL,
    col text NOT NULL,
    release text NOT NULL,
    cfg text NOT NULL,
    id_type text NOT NULL,
    publishable bigint NOT NULL,
    facts text NOT NULL,
    burnt bigint
);
CREATE TABLE frozen.run (
    id bigint NOT NULL,
    space text NOT NULL,
    bits bigint NOT NULL,
    size bigint NOT NULL
);
CREATE TABLE frozen.run_part (
    run bigint NOT NULL,
    part bigint NOT NULL,
    piece bigint NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY frozen.run_part ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE frozen.scope (
    id bigint NOT NULL,
    name text NOT NULL,
    period text NOT NULL,
    unit text NOT NULL,
    measure text,
    limits text
);
CREATE TABLE frozen.segment (
    seq bigint NOT NULL,
    name text NOT NULL,
    data bytea NOT NULL
);
ALTER TABLE ONLY frozen.segment ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE frozen.tally (
    release bigint NOT NULL,
    nonce bigint NOT NULL,
    records bigint DEFAULT 0 NOT NULL,
    canaries bigint DEFAULT 0 NOT NULL,
    committed bigint DEFAULT 0 NOT NULL,
    expired bigint DEFAULT 0 NOT NULL,
    aborted bigint DEFAULT 0 NOT NULL,
    diverged bigint DEFAULT 0 NOT NULL,
    max_pure bigint DEFAULT 0
);
INSERT INTO frozen.batch VALUES (14, 1, 0, 1, 'job-3', 2, 0, 0, '\x0303');
INSERT INTO frozen.batch VALUES (4, 1, 0, 1, 'job-1', 12, 0, 1, '\x010101010101020202020201');
INSERT INTO frozen.batch VALUES (5, 2, 0, 1, 'job-1', 12, 0, 1, '\x010101010101020202020202');
INSERT INTO frozen.batch VALUES (22, 3, 0, 2, 'job-1', 3, 3, 0, '\x000000');
INSERT INTO frozen.batch VALUES (23, 4, 3, 3, 'job-1', 3, 3, 0, '\x000000');
INSERT INTO frozen.batch VALUES (30, 6, 0, 5, 'job-1', 1, 1, 0, '\x00');
INSERT INTO frozen.burnt VALUES ('reviews', 'r0', 27);
INSERT INTO frozen.burnt VALUES ('films', '2025-01', 31);
INSERT INTO frozen.burnt VALUES ('films', 'r1', 34);
INSERT INTO frozen.commit_part VALUES (4, 8);
INSERT INTO frozen.commit_part VALUES (5, 10);
INSERT INTO frozen.commit_part VALUES (4, 12);
INSERT INTO frozen.event VALUES (1, 'RELEASE', '{"cfg":"94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d","column":"review","dataset":"reviews","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r1","release_id":1,"seq":1,"ts":"2026-11-22T08:41:42.695+00:00","writer":"527ce537"}', '\xb4bb2c185f3eabddd3ed17624afd0cb7b5b40d22f9d86b9e8357fb38f6681e31');
INSERT INTO frozen.event VALUES (2, 'RELEASE', '{"cfg":"7e04040c591a3cbe44c95bcdae56fbf0221b0922abe60a9502a1888bf74d494a","column":"note","dataset":"reviews","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"expost":true,"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r1","release_id":2,"seq":2,"ts":"2026-11-22T08:41:42.701+00:00","writer":"527ce537"}', '\x04030dc0fcec06662569db302ab6fb915a5cab17c4468ea2480d0ca30614cc83');
INSERT INTO frozen.event VALUES (3, 'CAP_SET', '{"dataset":"reviews","event":"CAP_SET","limits":[20000000],"measure":"pure","name":"dataset:reviews","period":"2026","scope":1,"seq":3,"ts":"2026-11-22T08:41:42.712+00:00","unit":"subject","writer":"527ce537"}', '\x27c19bcabc731b02ebc4fff01ce4fc335f024943ad29b75a0ffce924fad18d41');
INSERT INTO frozen.event VALUES (4, 'RESERVE', '{"columns":{"canary":{"raw":"<u1"},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"all":"inf"},"eps_pure":{"of":"n_worst","times":1000000},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"raw":"<u1"},"record":{"bytes":32},"rho":{"of":"n_worst","times":1},"unit":{"bytes":32}},"dataset":"reviews","event":"RESERVE","job":"job-1","name":"dataset:reviews","nonce":0,"period":"2026","release":1,"root":"1a17038cf792fda2f3b7dac5e0b9f2a2aba2ade18cb292d899ee201e5e90df0c","rows":12,"scope":1,"seq":4,"ts":"2026-11-22T08:41:42.718+00:00","unit":"subject","writer":"527ce537"}', '\x9b15ca39051e9c633e976d081bb04eab380f05f1ea6059bf09140b371142f92c');
INSERT INTO frozen.event VALUES (5, 'RESERVE', '{"columns":{"canary":{"raw":"<u1"},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"all":"inf"},"eps_pure":{"all":1000000},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"all":1},"record":{"bytes":32},"rho":{"all":1},"unit":{"bytes":32}},"dataset":"reviews","event":"RESERVE","job":"job-1","name":"dataset:reviews","nonce":0,"period":"2026","release":2,"root":"c20d78003dbe5602dd5bbf7169f60939a64ae14caf57d0310c3762d172dddc5d","rows":12,"scope":1,"seq":5,"ts":"2026-11-22T08:41:42.727+00:00","unit":"subject","writer":"527ce537"}', '\xee8ae0bcfd7f5f88c02dd03ac416ba1637f1e83df554f06f2acadf87df6394fa');
INSERT INTO frozen.event VALUES (6, 'REPLAY', '{"attached":[4],"committed":0,"event":"REPLAY","job":"job-2","nonce":0,"pending":12,"release":1,"seq":6,"ts":"2026-11-22T08:41:42.740+00:00","writer":"527ce537"}', '\xd9911348c91efece70d5c76eab1fdaafa4b614f9baad039c9f92164475df86ac');
INSERT INTO frozen.event VALUES (7, 'REPLAY', '{"attached":[5],"committed":0,"event":"REPLAY","job":"job-2","nonce":0,"pending":12,"release":2,"seq":7,"ts":"2026-11-22T08:41:42.743+00:00","writer":"527ce537"}', '\xb83b2df642d195a5ac5ec0979210093022013af021e19655d2a0050cb1dfe999');
INSERT INTO frozen.event VALUES (8, 'COMMIT', '{"columns":{"batch":{"all":4},"digest":{"bytes":32},"positions":{"all":1},"row":{"from":0}},"event":"COMMIT","job":"job-1","nonce":0,"release":1,"root":"8ef0fb1aa851a5dfaf7d8a04a6a3d878676d0f793712a48e78c88d66d4a6388d","rows":6,"seq":8,"ts":"2026-11-22T08:41:42.763+00:00","writer":"527ce537"}', '\x13208b988474df87085eccb7c20a4a8907f1af0ea1b4694ee5fca8c6b0ba4193');
INSERT INTO frozen.event VALUES (9, 'DIVERGED', '{"columns":{"batch":{"all":4},"digest":{"bytes":32},"positions":{"all":0},"row":{"all":0}},"event":"DIVERGED","job":"job-1","nonce":0,"release":1,"root":"8f0e4564825329e7163526f4b3b004b61999f4cc60edc783da855bb6a32328da","rows":1,"seq":9,"ts":"2026-11-22T08:41:42.778+00:00","writer":"527ce537"}', '\x38c02185a547f837c8d72bce2b640f828ad50d5424ab1a257aa59bbe8d19327b');
INSERT INTO frozen.event VALUES (10, 'COMMIT', '{"columns":{"batch":{"all":5},"digest":{"bytes":32},"positions":{"all":0},"row":{"from":0}},"event":"COMMIT","job":"job-1","nonce":0,"release":2,"root":"5e4abdc65c2844471d9702172b5fe75556c4215ce69066b117547edfb08daf72","rows":6,"seq":10,"ts":"2026-11-22T08:41:42.787+00:00","writer":"527ce537"}', '\x2000f79814c1e2b843013adfebc2e40228393470a5fb4198ed63051ab0a9d4d4');
INSERT INTO frozen.event VALUES (11, 'SETTLE', '{"columns":{"batch":{"all":5},"eps_pure":{"of":"row","times":100000},"row":{"from":0}},"event":"SETTLE","job":"job-1","nonce":0,"release":2,"root":"91421b526f4d14bc00ba6e7d7a0c52c0a1edd4bdf5411d62a438db43cdef3bc4","rows":6,"seq":11,"ts":"2026-11-22T08:41:42.790+00:00","writer":"527ce537"}', '\xbe23a7f07521fa04f072e1d6ccb4f094ace0e5abbef8271b4a4f00f04de3bc64');
INSERT INTO frozen.event VALUES (12, 'COMMIT', '{"columns":{"batch":{"all":4},"digest":{"bytes":32},"positions":{"all":0},"row":{"all":11}},"event":"COMMIT","job":"job-1","nonce":0,"release":1,"root":"6cebb0c78eb5067b95580299560c5227836dbc86e85184ffa5851d3d3ae81af4","rows":1,"seq":12,"ts":"2026-11-22T08:41:42.798+00:00","writer":"527ce537"}', '\x84601a13d207ccd91e3465c991c813dc30146f9d0b3c1b91a67157a72f9edf2e');
INSERT INTO frozen.event VALUES (13, 'REPLAY', '{"attached":[],"committed":6,"event":"REPLAY","job":"job-1","nonce":0,"pending":0,"release":1,"seq":13,"ts":"2026-11-22T08:41:42.806+00:00","writer":"527ce537"}', '\xa7de402f2db4b828bf97fc146848d1368631cfecc97fc3f8e4d9f0c8b9c39a73');
INSERT INTO frozen.event VALUES (14, 'RESERVE', '{"columns":{"canary":{"all":0},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"all":"inf"},"eps_pure":{"of":"n_worst","times":1000000},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"from":1},"record":{"bytes":32},"rho":{"from":1},"unit":{"bytes":32}},"dataset":"reviews","event":"RESERVE","job":"job-3","name":"dataset:reviews","nonce":0,"period":"2026","release":1,"root":"c04b516a652eea57fb79d83293b6c658a1793e1bd3f088ac37a3a9398899ac2e","rows":2,"scope":1,"seq":14,"ts":"2026-11-22T08:41:42.816+00:00","unit":"subject","writer":"527ce537"}', '\x2599515afa926bb1721686033abf171a73cba33c4309abc2e9dfedd262cec542');
INSERT INTO frozen.event VALUES (15, 'ABORT', '{"columns":{"batch":{"all":14},"row":{"from":0}},"event":"ABORT","job":"job-3","nonce":0,"release":1,"root":"0691d82b38b8ffb244cab0f935a7a156479d437ae2c3c311990fea5c0119c07b","rows":2,"seq":15,"ts":"2026-11-22T08:41:42.822+00:00","writer":"527ce537"}', '\x8d53eef81ccb87a989da95bc47107b7d5b1a3a43e23a5f816747dd3fe18aae17');
INSERT INTO frozen.event VALUES (16, 'EXPIRE', '{"columns":{"batch":{"all":4},"row":{"from":6}},"event":"EXPIRE","job":"job-1","nonce":0,"release":1,"root":"9c16bef1917c5800ac921ca28947c2c224bc9f6ebc97c94a7ef78cde3accd3a5","rows":5,"seq":16,"ts":"2026-11-22T08:41:42.827+00:00","writer":"527ce537"}', '\x5ea28b4e4a3717e0e4d9c1a70c98e0b09beb6c3b7f2aba27aa4d13c0450addc0');
INSERT INTO frozen.event VALUES (17, 'EXPIRE', '{"columns":{"batch":{"all":5},"row":{"from":6}},"event":"EXPIRE","job":"job-1","nonce":0,"release":2,"root":"cc247b0efbb98405024f5d98a71ab70ab2b79c9a9c0df0bfeb283cad159a718c","rows":6,"seq":17,"ts":"2026-11-22T08:41:42.833+00:00","writer":"527ce537"}', '\x3e8c978e404e472d8f11f6a044f50e32289797971ebf1c7e18f13f949a29013a');
INSERT INTO frozen.event VALUES (18, 'PUBLISH', '{"event":"PUBLISH","manifest":"05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f","releases":[[1,0],[2,0]],"rows":4,"seq":18,"ts":"2026-11-22T08:41:42.837+00:00","version":"v1-0123456789ab","writer":"527ce537"}', '\x1e6f52a167df4798a48bbd2e49f7c5183109e255a150c8c913dd995ce846c8e8');
INSERT INTO frozen.event VALUES (19, 'RELEASE', '{"cfg":"94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d","column":"review","dataset":"notes","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r1","release_id":3,"seq":19,"ts":"2026-11-22T08:41:42.842+00:00","writer":"527ce537"}', '\x9b0dedd95103a43b7685d375ffa7cc1fad913bbf78349745beefb1441bba9159');
INSERT INTO frozen.event VALUES (20, 'RELEASE', '{"cfg":"94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d","column":"review","dataset":"metric","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r1","release_id":4,"seq":20,"ts":"2026-11-22T08:41:42.847+00:00","writer":"527ce537"}', '\xb8a2cfb9fd381eea109b2cd32ba603cf886800ede1fb2efc893386291d69faa5');
INSERT INTO frozen.event VALUES (21, 'CAP_SET', '{"dataset":"notes","event":"CAP_SET","limits":[9000000],"measure":"zcdp","name":"group:people","period":"all","scope":2,"seq":21,"ts":"2026-11-22T08:41:42.854+00:00","unit":"subject","writer":"527ce537"}', '\x8df8320fcaacd612a94260c99c3b1f0d1cc2445f2afc9caa2d45b875c8b5f460');
INSERT INTO frozen.event VALUES (22, 'RESERVE', '{"columns":{"canary":{"all":0},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"all":"inf"},"eps_pure":{"of":"n_worst","times":1000000},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"from":2},"record":{"bytes":32},"rho":{"from":2},"unit":{"bytes":32}},"dataset":"notes","event":"RESERVE","job":"job-1","name":"group:people","nonce":0,"period":"all","release":3,"root":"0e884ccdd6ba7ee07bedf59e737179d20f65ed6918cd723504d9fa7caa55677f","rows":3,"scope":2,"seq":22,"ts":"2026-11-22T08:41:42.857+00:00","unit":"subject","writer":"527ce537"}', '\xf337aeff79b82444c1e69aa22f041dd8637bb7a6872d68604fa8facfb18ef5f2');
INSERT INTO frozen.event VALUES (23, 'RESERVE', '{"columns":{"canary":{"all":0},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"from":1},"eps_pure":{"all":"inf"},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"all":2},"record":{"bytes":32},"rho":{"all":2},"unit":{"same":"record"}},"dataset":"metric","event":"RESERVE","job":"job-1","name":"dataset:metric","nonce":3,"period":"all","release":4,"root":"ac43dd2da48e8bb4bf64802308a8e01347807070117b523d933407138f1b1fd9","rows":3,"scope":3,"seq":23,"ts":"2026-11-22T08:41:42.868+00:00","unit":"record","writer":"527ce537"}', '\x3399896d5e572c008bdfe83b5edd40317e64adddd9dab85134dcf05c3a408d75');
INSERT INTO frozen.event VALUES (24, 'CAP_SET', '{"dataset":"reviews","event":"CAP_SET","limits":[3000000,1000],"measure":"approx","name":"dataset:reviews","period":"2027","scope":4,"seq":24,"ts":"2026-11-22T08:41:42.876+00:00","unit":"subject","writer":"527ce537"}', '\x0e69b9aeab3f9293fae21db059df82d3072b46f450512448d64e939ab553d903');
INSERT INTO frozen.event VALUES (25, 'CAP_SET', '{"dataset":"reviews","event":"CAP_SET","limits":[5000000,1000],"measure":"approx","name":"dataset:reviews","period":"2027","scope":4,"seq":25,"ts":"2026-11-22T08:41:42.879+00:00","unit":"subject","writer":"527ce537"}', '\x89101a024d3ce0143f739f1c47f4bd80750dd5a2aaa345a05d3751acf8dd2670');
INSERT INTO frozen.event VALUES (26, 'RELEASE', '{"cfg":"26b7887d73bc4a994de6cf5268b7e5bb9366102ed18d6b758e5b8382699d555e","column":"review","dataset":"reviews","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r0","release_id":5,"seq":26,"ts":"2026-11-22T08:41:42.882+00:00","writer":"527ce537"}', '\x54d2d9b28daa7eb08f5914a3570f1dff0f9419e6fe8df9fa32d48e69d4ba37d5');
INSERT INTO frozen.event VALUES (27, 'BURN', '{"dataset":"reviews","event":"BURN","reason":"canaries_native","release":"r0","seq":27,"ts":"2026-11-22T08:41:42.885+00:00","writer":"527ce537"}', '\x257505241f30e3a24cc7eff69baca2d1b90555d3e4339e24a8d63e7db4bad49f');
INSERT INTO frozen.event VALUES (28, 'RELEASE', '{"cfg":"94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d","column":"review","dataset":"films","event":"RELEASE","facts":{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}},"id_type":"string","publishable":true,"release":"r1","release_id":6,"seq":28,"ts":"2026-11-22T08:41:42.888+00:00","writer":"527ce537"}', '\xb7c8b1e81115d5991b08710b82de05867d60ecc91dccef4b07f777e570c42c87');
INSERT INTO frozen.event VALUES (29, 'CAP_SET', '{"dataset":"films","event":"CAP_SET","limits":[9000000],"measure":"pure","name":"dataset:films","period":"2026","scope":5,"seq":29,"ts":"2026-11-22T08:41:42.894+00:00","unit":"subject","writer":"527ce537"}', '\xcddbde8696f666cae2c0dd2bc69657e3ddc5f4827de544fbb912175ded627a48');
INSERT INTO frozen.event VALUES (30, 'RESERVE', '{"columns":{"canary":{"all":0},"delta":{"all":"inf"},"eps_approx":{"all":"inf"},"eps_metric":{"all":"inf"},"eps_pure":{"all":2000000},"eps_tight":{"all":"inf"},"idem_key":{"bytes":32},"mu2":{"all":"inf"},"n_worst":{"all":2},"record":{"bytes":32},"rho":{"all":2},"unit":{"bytes":32}},"dataset":"films","event":"RESERVE","job":"job-1","name":"dataset:films","nonce":0,"period":"2026","release":6,"root":"1efb6d7f0798a502b532b4e3c29098352e58cf57a82b140318e4b596479a4162","rows":1,"scope":5,"seq":30,"ts":"2026-11-22T08:41:42.898+00:00","unit":"subject","writer":"527ce537"}', '\x9e29973f74801f78d4e15be2bb19b4de56083f144a3bfa4383da901ef06cce07');
INSERT INTO frozen.event VALUES (31, 'BURN', '{"dataset":"films","event":"BURN","reason":"restored from a copy","release":"2025-01","seq":31,"ts":"2026-11-22T08:41:42.908+00:00","writer":"527ce537"}', '\x1c397b3834e61994836d02edba47ce35381ba0b9999550d95d5114277fc8b43b');
INSERT INTO frozen.event VALUES (32, 'FREEZE', '{"dataset":"films","event":"FREEZE","reason":"restored from a copy","seq":32,"ts":"2026-11-22T08:41:42.909+00:00","writer":"527ce537"}', '\x9c11e291f1cd42035078dee40d8f514fc50876140362637a2bb56d08199be15d');
INSERT INTO frozen.event VALUES (33, 'CAP_SET', '{"dataset":"films","event":"CAP_SET","limits":[5000000],"measure":"pure","name":"dataset:films","period":"2026","scope":5,"seq":33,"ts":"2026-11-22T08:41:42.917+00:00","unit":"subject","writer":"527ce537"}', '\xe0f7b12c22d465f0f78fa1b851bc92ba69f7b8d9282c7467bbe61a14d863bb71');
INSERT INTO frozen.event VALUES (34, 'BURN', '{"dataset":"films","event":"BURN","reason":"the ledger was lost or restored","release":"r1","seq":34,"ts":"2026-11-22T08:41:42.918+00:00","writer":"527ce537"}', '\x0c4e0c6721f9e9522b02b7083886fd6b0d03cf47aa294eb8951251243c35dabe');
INSERT INTO frozen.event VALUES (35, 'THAW', '{"dataset":"films","event":"THAW","lost":{"eps_pure":4000000},"seq":35,"ts":"2026-11-22T08:41:42.919+00:00","writer":"527ce537"}', '\xcc0883f38e67d657fe54091098b185581550fd9a13f30085d8cf5f0163b0472d');
INSERT INTO frozen.event VALUES (36, 'FREEZE', '{"dataset":"songs","event":"FREEZE","missing":"0a9584aa881f0194e3a1183368e59699:35:cc0883f38e67d657fe54091098b185581550fd9a13f30085d8cf5f0163b0472d","reason":"lost","seq":36,"ts":"2026-11-22T08:41:42.922+00:00","writer":"527ce537"}', '\x1d3e450d8e12f68bc2d1db648ff6868c1c8ab72864cbb642238459f9f7cf80c1');
INSERT INTO frozen.frozen VALUES ('songs', 36);
INSERT INTO frozen.member VALUES (1, 'reviews');
INSERT INTO frozen.member VALUES (2, 'notes');
INSERT INTO frozen.member VALUES (3, 'metric');
INSERT INTO frozen.member VALUES (4, 'reviews');
INSERT INTO frozen.member VALUES (5, 'films');
INSERT INTO frozen.meta VALUES ('schema', '3');
INSERT INTO frozen.meta VALUES ('ledger_id', '0a9584aa881f0194e3a1183368e59699');
INSERT INTO frozen.meta VALUES ('id_check', 'bd0a9e9f2fd41beedfe18bdea16824bd5e2a85e71208605497e55bf14ed21311');
INSERT INTO frozen.meta VALUES ('head', '36:1d3e450d8e12f68bc2d1db648ff6868c1c8ab72864cbb642238459f9f7cf80c1');
INSERT INTO frozen.publication VALUES (1, 0, 'v1-0123456789ab', '05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f', 4);
INSERT INTO frozen.publication VALUES (2, 0, 'v1-0123456789ab', '05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f', 4);
INSERT INTO frozen.release VALUES (1, 'reviews', 'review', 'r1', '94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', NULL);
INSERT INTO frozen.release VALUES (2, 'reviews', 'note', 'r1', '7e04040c591a3cbe44c95bcdae56fbf0221b0922abe60a9502a1888bf74d494a', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"expost":true,"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', NULL);
INSERT INTO frozen.release VALUES (3, 'notes', 'review', 'r1', '94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', NULL);
INSERT INTO frozen.release VALUES (4, 'metric', 'review', 'r1', '94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', NULL);
INSERT INTO frozen.release VALUES (5, 'reviews', 'review', 'r0', '26b7887d73bc4a994de6cf5268b7e5bb9366102ed18d6b758e5b8382699d555e', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', 27);
INSERT INTO frozen.release VALUES (6, 'films', 'review', 'r1', '94306a785baf67692e3be27b5f6a568ad696ec793ba41450be78123e02b1d25d', 'string', 1, '{"artifact_hashes":{"table":"0d4fc4a78d3706edccafb665a8b2fdd9309e82c78625bb0f2b8e7bb9e1c4d21c"},"assumptions":["NO_CRASH_CHANNEL","PRF","TRUSTED_IDS"],"class":"COND_PURE","configuration":{"epsilon":"1.0","mechanism":"toy"},"disclosures":["length"],"least":{"delta":0,"epsilon":10000000,"rule":"pure"},"mechanism":"toy","neighbours":"two texts of equal length","unit":"word","worst_case":{"assumptions":[],"delta":0,"diameter":"inf","disclosures":[],"eps_approx":10000000,"eps_metric":"inf","eps_pure":10000000,"eps_tight":"inf","guarantee_class":"PURE_LDP","metric_id":null,"mu2":"inf","n_worst":0,"rho":"inf"}}', 34);
INSERT INTO frozen.run VALUES (659967696853970364, 'balance/1', 0, 4);
INSERT INTO frozen.run VALUES (3575180799180433858, 'records/1/0', 0, 12);
INSERT INTO frozen.run VALUES (3316768969539853936, 'records/2/0', 0, 12);
INSERT INTO frozen.run VALUES (1083674590555005316, 'balance/1', 0, 4);
INSERT INTO frozen.run VALUES (986243448906189145, 'balance/1', 0, 2);
INSERT INTO frozen.run VALUES (99145144516254459, 'records/1/0', 0, 2);
INSERT INTO frozen.run VALUES (4302618427513426206, 'balance/1', 0, 2);
INSERT INTO frozen.run VALUES (1316088390974269400, 'balance/2', 0, 2);
INSERT INTO frozen.run VALUES (1535861878192925732, 'records/3/0', 0, 3);
INSERT INTO frozen.run VALUES (3077654625006155929, 'records/4/3', 0, 3);
INSERT INTO frozen.run VALUES (3553624457275954199, 'balance/5', 0, 1);
INSERT INTO frozen.run VALUES (2528184161527433563, 'records/6/0', 0, 1);
INSERT INTO frozen.run_part VALUES (659967696853970364, 0, 0, '\x706bfd7d2482514f1ac7b3728c45fc68c82f943698fc93d0ce4b6cdc3db9a7d1');
INSERT INTO frozen.run_part VALUES (659967696853970364, 0, 1, '\x632760a6e0ddb9480cedefc1aa96cfd8d036fc71c2256e35a3f8cfc2829d7ac2001bb70000000000c0e1e4000000000000127a0000000000001bb70000000000');
INSERT INTO frozen.run_part VALUES (3575180799180433858, 0, 0, '\x4576c6e22934a22af19681d3651a7b42ac280d4948d06a4a1ae59a5f3857e34a5c2ccaa12c930a5b5a68051bba3b1f609083a7fa60f25870bad81d468e7f49a2f678fdbbe10f39a5250cb52b123fbcb52564e84e7509a3c2d5b19305808616ed');
INSERT INTO frozen.run_part VALUES (3575180799180433858, 0, 1, '\xafe1fbf4d54bb42efee8c314e2fc3ea2f1487213e00a9577bc7c230ec4e4c1ae7e41c436522399f87d15613ab5bfe8e4d9c078587bfd30102d55317e34ec73027f3ec330142faec220f7af94528767cf01fb577a431a56c40a38cf81cdfaac83beede6bddd8c6053c250256a61eda8a92de56579292dbe66e341e940b6d98506c15299fc5a767d5bc8694a2785b75f5d172f2642467c33dc60920bf711ea596cd6684c6671127607f7d8f155d2f9f66149188c8d9c13b37d06da01ff434f3d1dabe50fd9094c65b49cefd6c06bffebb7c7c1fa504d7d45f71314f1151e0bf29b3a4bbcd54575b3359bf2e1abb01895423470156bb5c547f34473071b72e3c7c219365944c287f37c8b82f1f585439b5979fcea2a7ecec547bb5fa85dd52886450300000004000000090000000400000004000000040000000000000004000000050000000400000006000000040000000200000004000000070000000400000008000000040000000a0000000400000001000000040000000b00000004000000');
INSERT INTO frozen.run_part VALUES (3316768969539853936, 0, 0, '\x4576c6e22934a22af19681d3651a7b42ac280d4948d06a4a1ae59a5f3857e34a5c2ccaa12c930a5b5a68051bba3b1f609083a7fa60f25870bad81d468e7f49a2f678fdbbe10f39a5250cb52b123fbcb52564e84e7509a3c2d5b19305808616ed');
INSERT INTO frozen.run_part VALUES (3316768969539853936, 0, 1, '\xafe1fbf4d54bb42efee8c314e2fc3ea2f1487213e00a9577bc7c230ec4e4c1ae7e41c436522399f87d15613ab5bfe8e4d9c078587bfd30102d55317e34ec73027f3ec330142faec220f7af94528767cf01fb577a431a56c40a38cf81cdfaac83024ffef988d891cc242771211ef5275dd6dc10749d68bda2222aa39acc378dee7bad0af4a9d36836602a62550dea070de72ada4f674ad1dd6d97e2ec126450b5a74a00316358dea0d5f4beb41add66a1763219c3acbc73f9937545e226d7dd39ec1b6cb2c41da4c1dfabfa62831aa77533c959b215063d906f9103d92149953dcf187466020dd3bc4d4c20394deea3268a82539ac8aa44533c93e337bc0b2efb1e70effb3cc4c4272b17b47574e21f19df0e2115be3af49306ab7830e37c53a40300000005000000090000000500000004000000050000000000000005000000050000000500000006000000050000000200000005000000070000000500000008000000050000000a0000000500000001000000050000000b00000005000000');
INSERT INTO frozen.run_part VALUES (1083674590555005316, 0, 0, '\x706bfd7d2482514f1ac7b3728c45fc68c82f943698fc93d0ce4b6cdc3db9a7d1');
INSERT INTO frozen.run_part VALUES (1083674590555005316, 0, 1, '\x632760a6e0ddb9480cedefc1aa96cfd8d036fc71c2256e35a3f8cfc2829d7ac20096e7ffffffffff40a3eaffffffffffa051f5ffffffffff00cbf3ffffffffff');
INSERT INTO frozen.run_part VALUES (986243448906189145, 0, 0, '\x793d9a4f343be518e067b171f3e451b1');
INSERT INTO frozen.run_part VALUES (986243448906189145, 0, 1, '\xa17dd6deacd822b769f38567b3ea4ae940420f000000000080841e0000000000');
INSERT INTO frozen.run_part VALUES (99145144516254459, 0, 0, '\x6ab93e7ed723382423e13cce16893d7e');
INSERT INTO frozen.run_part VALUES (99145144516254459, 0, 1, '\x7da4c10287b12e4c75254979c71a4216e31be0188dfcd492df42ca6bbe7173e1c5b0666e14f545d2f90131e4c63f88e5010000000e000000000000000e000000');
INSERT INTO frozen.run_part VALUES (4302618427513426206, 0, 0, '\x793d9a4f343be518e067b171f3e451b1');
INSERT INTO frozen.run_part VALUES (4302618427513426206, 0, 1, '\xa17dd6deacd822b769f38567b3ea4ae9c0bdf0ffffffffff807be1ffffffffff');
INSERT INTO frozen.run_part VALUES (1316088390974269400, 0, 0, '\x706bfd7d2482514f1ac7b3728c45fc68');
INSERT INTO frozen.run_part VALUES (1316088390974269400, 0, 1, '\x632760a6e0ddb9480cedefc1aa96cfd802000000000000000700000000000000');
INSERT INTO frozen.run_part VALUES (1535861878192925732, 0, 0, '\x11ff3cf24a1e61b9c3b4d1a435b5e6c0e0431fb5aea703e8');
INSERT INTO frozen.run_part VALUES (1535861878192925732, 0, 1, '\x1656bec265aa9ae805ec39ab4b5b6b1794fd68e0bc4daf6317bee02ac1ef2a933e38d5d24a487f344af9ee223ba0555cf25d2f87806e9f24cc87638558dbec9ee33d765a770991bf020000001600000001000000160000000000000016000000');
INSERT INTO frozen.run_part VALUES (3077654625006155929, 0, 0, '\x11ff3cf24a1e61b9c3b4d1a435b5e6c0e0431fb5aea703e8');
INSERT INTO frozen.run_part VALUES (3077654625006155929, 0, 1, '\x1656bec265aa9ae805ec39ab4b5b6b1794fd68e0bc4daf63e4e554e91735f2bf98e0d0e6bbd5aa6b628f9cfbb0ceb0e9e56d43b61044d68c7ed38101be52fb80352636ca85cb80fc020000001700000001000000170000000000000017000000');
INSERT INTO frozen.run_part VALUES (3553624457275954199, 0, 0, '\x706bfd7d2482514f');
INSERT INTO frozen.run_part VALUES (3553624457275954199, 0, 1, '\x632760a6e0ddb94880841e0000000000');
INSERT INTO frozen.run_part VALUES (2528184161527433563, 0, 0, '\xc0fb435c2aa162c5');
INSERT INTO frozen.run_part VALUES (2528184161527433563, 0, 1, '\x2d4d69724df4844c6188a414b824fc8f65e7e3e7af31f3b7000000001e000000');
INSERT INTO frozen.scope VALUES (1, 'dataset:reviews', '2026', 'subject', 'pure', '[20000000]');
INSERT INTO frozen.scope VALUES (2, 'group:people', 'all', 'subject', 'zcdp', '[9000000]');
INSERT INTO frozen.scope VALUES (3, 'dataset:metric', 'all', 'record', NULL, NULL);
INSERT INTO frozen.scope VALUES (4, 'dataset:reviews', '2027', 'subject', 'approx', '[5000000, 1000]');
INSERT INTO frozen.scope VALUES (5, 'dataset:films', '2026', 'subject', 'pure', '[5000000]');
INSERT INTO frozen.segment VALUES (4, 'record', '\x4ae357385f9ae51aaec1e4c40e237cbc98f26f36d5681a6aabb14f7a792ee315c2a309754ee86425c4561a437a57fb01b6d0be9037f8a71f226c55fc4956e6b77058f260faa783901030fd7b5878c0d90638a33b87fc65d5f22fe4124056ccf82aa23429e2c676452eb44bd5f4fbe1afbb472e8721f061bfcdc880cdf10d418f4a6ad048490d28ac77950ae0137248f17405e8b051a486a85b244dad9fb06e125b0a932ca1ca2c5cf899235236c4417e572ae52552596ab10a9fffbde3fe56d6601f3bba1b05685ae4e8bfb53a61157d9927a13deb9c9e4252b332251d2331d6a2497f8e461dd8ba0273ec347e31552d7c6d77360b753c87e4e76941a6334822a5390fe1bbfd78f6c2ae2f1430c33e7f6871bc18ffa499cabcfed50853668195427b1a65d38196f1a23efce214c3e8fedb4d795456b9db54769243a12cdb1370b5bc3f122bb50c25cf67875294aff7208ce62225f90ed6aa9ef7dc83c457dcebed1686800593b1d583acfacd81cf380a1dceb136851edc0431e2276c8bfd73e8');
INSERT INTO frozen.segment VALUES (4, 'unit', '\x4f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b7d093fc9836942fc8356e25c271fc36d0fe3826df08c82e4bae7e7c8585cce8e84f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b7d093fc9836942fc8356e25c271fc36d0fe3826df08c82e4bae7e7c8585cce8e84f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b70000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO frozen.segment VALUES (4, 'idem_key', '\x0685d9b640e941e39bf20b1e15f114137a28f81af951ab9b7c748625c1234ba97db3139c8d8c184947c5ce7e2aeafc790763ebddbbae94508ac4682cee377018dc337c4642262f17f347c5b56b157034bab3e1639a6d7e6034fc6823b0a661a553608cddbde6edbeb4654c09d90fe5abd39198e7e4f833bcc85af43f58977b7066be2d297965e52df7457d4d50fac1c72cf4cc73a26a05ca3982fb2533d91de25b7d765afc9952c135b37545d5bc4b3ad384e68bc66fe0579883a7f360934e095d5fb785274a69c8429518b0abe1f29bf632858b80a63f8e0579fec1ed31dedd6c59ea11f70b9260c2c7e3721b077344a558f9aacf2462828f2ef14338704e6a07761271664c68d67cf387c244593619e3cecc70668e10f4abd8b7604c1301d6a9a8ed616a2550c2b7ebff6bc0d6ef9c5db60100cdfa18e84f03a1a8aa84354461f6f9d255f1d8f7599b4385f5f1828bfe787af2f2cc08585736962fca7883031d3d4f43ff01da06458628d55da85fbbe3355e5720ad78196640612275134f4a');
INSERT INTO frozen.segment VALUES (4, 'canary', '\x000000000000000000000001');
INSERT INTO frozen.segment VALUES (4, 'n_worst', '\x010203040506010203040506');
INSERT INTO frozen.segment VALUES (5, 'record', '\x4ae357385f9ae51aaec1e4c40e237cbc98f26f36d5681a6aabb14f7a792ee315c2a309754ee86425c4561a437a57fb01b6d0be9037f8a71f226c55fc4956e6b77058f260faa783901030fd7b5878c0d90638a33b87fc65d5f22fe4124056ccf82aa23429e2c676452eb44bd5f4fbe1afbb472e8721f061bfcdc880cdf10d418f4a6ad048490d28ac77950ae0137248f17405e8b051a486a85b244dad9fb06e125b0a932ca1ca2c5cf899235236c4417e572ae52552596ab10a9fffbde3fe56d6601f3bba1b05685ae4e8bfb53a61157d9927a13deb9c9e4252b332251d2331d6a2497f8e461dd8ba0273ec347e31552d7c6d77360b753c87e4e76941a6334822a5390fe1bbfd78f6c2ae2f1430c33e7f6871bc18ffa499cabcfed50853668195427b1a65d38196f1a23efce214c3e8fedb4d795456b9db54769243a12cdb1370b5bc3f122bb50c25cf67875294aff7208ce62225f90ed6aa9ef7dc83c457dcebed1686800593b1d583acfacd81cf380a1dceb136851edc0431e2276c8bfd73e8');
INSERT INTO frozen.segment VALUES (5, 'unit', '\x4f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b7d093fc9836942fc8356e25c271fc36d0fe3826df08c82e4bae7e7c8585cce8e84f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b7d093fc9836942fc8356e25c271fc36d0fe3826df08c82e4bae7e7c8585cce8e84f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5d1a7b93ddc6c4bcec27a9d82c2cff8a3a5bc209891bd99ac62028475381680b70000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO frozen.segment VALUES (5, 'idem_key', '\xee8d37cc9aa32a223d954921d903916f5c65b99f01766b830a2a28f95ba68d2ef973bcacc319327693f43abe15210edf5fa6520505b42fa67cf8465194625143ddd14a674fda2ae75344aac89a53828a284ac1c8927c49e42d994983af887196cc91d888f9fe4f02c1a41dc4b26c1becbccbbd1cbeef76a9c1f2df63bdb6e11ea2bd689d7410dcd6903d0615b259c933c2cdb1493a1128785adb0162131f23583668d3a9f40aad7bbcd30d02667418cf0cabd46eced30649e6ac123fe8d2d24e0d07ea0d55622a6026a3ee4d39204c4deeb70e8e5eb436676904413c27e42dfab5506412ece2976dfb2e0bbc37e3933c4be6066f86c70bbe638997416fd9ecc4a0de586331004aa727c4c43cfbef701e2a418b7777a160438a64debb896bf0905d27f51e2171272475a71a8362faabdf2569767bf1eeb15bf2e77c554c740a88a166dd1ab4bef4d5191fe27475b4172bfddf8bbe1ddace67eb6eea804aeb86f839ddd726e2457593a4537ce33078ab06917f18a37c84a73b4f944d931e9f15cc');
INSERT INTO frozen.segment VALUES (5, 'canary', '\x000000000000000000000001');
INSERT INTO frozen.segment VALUES (8, 'digest', '\xd581920e2698a11e63cb60c53a36e927577eac6853ff2d5df722a0e2ce33e82351420239354e8208c77f1d64e601c1bdbbb205b1160a69207c284c60bb8a108f11aefcd48176819e72c0b70afc9a5bda8037355f786bd79f95325c966fae87b39e4185825ae0cb7bd1fbdd058193a8548702dfa6aff1601fefb4cc110e76faac9e51297292a5cc04d2be59f06c3979e36937b511307a6826d8417ff6bc8fa6817daeda3a1425bb07b9f1086756a574e29c5fd8ec10c111e6164a47afa01ee141');
INSERT INTO frozen.segment VALUES (9, 'digest', '\xb97a2fd8d5698f61143b26ecf9cdaf11de14fbcc5a8e1a32643d0298df3957ba');
INSERT INTO frozen.segment VALUES (10, 'digest', '\xd581920e2698a11e63cb60c53a36e927577eac6853ff2d5df722a0e2ce33e82351420239354e8208c77f1d64e601c1bdbbb205b1160a69207c284c60bb8a108f11aefcd48176819e72c0b70afc9a5bda8037355f786bd79f95325c966fae87b39e4185825ae0cb7bd1fbdd058193a8548702dfa6aff1601fefb4cc110e76faac9e51297292a5cc04d2be59f06c3979e36937b511307a6826d8417ff6bc8fa6817daeda3a1425bb07b9f1086756a574e29c5fd8ec10c111e6164a47afa01ee141');
INSERT INTO frozen.segment VALUES (12, 'digest', '\x78c4b295ada80f64d7423860a03d7b782a9437427d7992c5ab3836630eaac1de');
INSERT INTO frozen.segment VALUES (14, 'record', '\x7e3d8916ce3ce12316421ac77949257548faee700e2626fe7c22dc44cac75f47243823d77e3eb96a4c2eb18702c1a47d48075d99114c89209c37a086542b0dc1');
INSERT INTO frozen.segment VALUES (14, 'unit', '\x18e53b344f9a3d79b722d8acded67da1dfc46334d979e65dd43453b106d43e84b151e4f371b167e0e94aeab36785f369342531b43a8df230a68b90bb4414a931');
INSERT INTO frozen.segment VALUES (14, 'idem_key', '\xe17371be6bca42dfe5883fc6e43101f919f20e6afd0a338f8b8123a3baaa412f92d4fc8d18e01be3d245f5146e66b0c503d09d349fcaed396a5db70bd941d795');
INSERT INTO frozen.segment VALUES (22, 'record', '\xe803a7aeb51f43e063af4dbce068fd947879cc6e369368093c53e7232728386cc0e6b535a4d1b4c3176b5b4bab39ec053d9d06848b648f83bc958856e8f68753b9611e4af23cff11e89aaa65c2be561643cf96afef69bba746132cb1ace38e52');
INSERT INTO frozen.segment VALUES (22, 'unit', '\x4f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b4068fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed568fc458c72b3c71ad8cf96aac1efed0c8e81a7890ea445a8b19005bcaa200ed5');
INSERT INTO frozen.segment VALUES (22, 'idem_key', '\x5c55a03b22eef94abf9109775a763de3869b1dceffcf490b9e00964d4c818773347f484ad2d5383e9eecdb58856387ccaa8c4b3e9f999311169c9b14ca2afb66932aefc12ae0be17249f6e80872f5df2a9574c60ded21da403698e8ebdc8b67c');
INSERT INTO frozen.segment VALUES (23, 'record', '\xe803a7aeb51f43e063af4dbce068fd947879cc6e369368093c53e7232728386cc0e6b535a4d1b4c3176b5b4bab39ec053d9d06848b648f83bc958856e8f68753b9611e4af23cff11e89aaa65c2be561643cf96afef69bba746132cb1ace38e52');
INSERT INTO frozen.segment VALUES (23, 'idem_key', '\xe9b0ceb0fb9c8f62fc80cb85ca362635413e118be2ad2bc2811c18bdbc3d69ed6baad5bbe6d0e09880fb52be0181d37e702e6966cbf91f4ddd7293aca4d5262ebff23517e954e5e48cd64410b6436de5cbeb4e673f96e3e7e62be2a10c9993f2');
INSERT INTO frozen.segment VALUES (30, 'record', '\xc562a12a5c43fbc04c84f44d72694d2dfcd6de95d5963f3510c19bff897506cd');
INSERT INTO frozen.segment VALUES (30, 'unit', '\x4f5182247dfd6b7048b9dde0a660276388fb539e10a6275aadeefa35c5b70b40');
INSERT INTO frozen.segment VALUES (30, 'idem_key', '\x8ffc24b814a48861b7f331afe7e3e765d4cae6c8cdd4e7c692a3c9f5cfbd5697');
INSERT INTO frozen.tally VALUES (1, 0, 14, 1, 7, 5, 2, 1, 6000000);
INSERT INTO frozen.tally VALUES (2, 0, 12, 1, 6, 6, 0, 0, 1000000);
INSERT INTO frozen.tally VALUES (3, 0, 3, 0, 0, 0, 0, 0, 4000000);
INSERT INTO frozen.tally VALUES (4, 3, 3, 0, 0, 0, 0, 0, NULL);
INSERT INTO frozen.tally VALUES (6, 0, 1, 0, 0, 0, 0, 0, 2000000);
ALTER TABLE ONLY frozen.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY frozen.burnt
    ADD CONSTRAINT burnt_pkey PRIMARY KEY (dataset, release);
ALTER TABLE ONLY frozen.commit_part
    ADD CONSTRAINT commit_part_pkey PRIMARY KEY (batch, seq);
ALTER TABLE ONLY frozen.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY frozen.frozen
    ADD CONSTRAINT frozen_pkey PRIMARY KEY (dataset);
ALTER TABLE ONLY frozen.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (scope, dataset);
ALTER TABLE ONLY frozen.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY frozen.publication
    ADD CONSTRAINT publication_pkey PRIMARY KEY (release, nonce, version);
ALTER TABLE ONLY frozen.release
    ADD CONSTRAINT release_dataset_col_release_key UNIQUE (dataset, col, release);
ALTER TABLE ONLY frozen.release
    ADD CONSTRAINT release_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frozen.run_part
    ADD CONSTRAINT run_part_pkey PRIMARY KEY (run, part, piece);
ALTER TABLE ONLY frozen.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frozen.scope
    ADD CONSTRAINT scope_name_period_key UNIQUE (name, period);
ALTER TABLE ONLY frozen.scope
    ADD CONSTRAINT scope_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frozen.segment
    ADD CONSTRAINT segment_pkey PRIMARY KEY (seq, name);
ALTER TABLE ONLY frozen.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (release, nonce);
CREATE INDEX batch_of_job ON frozen.batch USING btree (job);
CREATE INDEX batch_of_release ON frozen.batch USING btree (release, nonce);
CREATE INDEX batch_of_scope ON frozen.batch USING btree (scope);
CREATE INDEX run_of_space ON frozen.run USING btree (space);
