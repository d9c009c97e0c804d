-- Version 1. Integers are in base units, the unit is the end of the name;
-- SCHEMA.md explains each column.

CREATE TABLE drives (
    drive_id      INTEGER PRIMARY KEY,
    subsystem_nqn TEXT NOT NULL,
    serial        TEXT NOT NULL,
    model         TEXT NOT NULL,
    UNIQUE (serial, subsystem_nqn, model)
) STRICT;

CREATE TABLE transactions (
    transaction_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    drive_id         INTEGER NOT NULL REFERENCES drives,
    cntlid           INTEGER NOT NULL,
    title            TEXT NOT NULL,
    address          TEXT NOT NULL,
    state            TEXT NOT NULL,
    message          TEXT NOT NULL,
    began_at_unix_ns INTEGER NOT NULL,
    ended_at_unix_ns INTEGER,
    plan_json        TEXT NOT NULL,
    records          INTEGER NOT NULL,
    head_sha256      BLOB NOT NULL CHECK (length(head_sha256) = 32)
) STRICT;

CREATE INDEX transactions_unfinished ON transactions (drive_id)
    WHERE state IN ('open', 'rolling_back');

CREATE TABLE steps (
    transaction_id INTEGER NOT NULL REFERENCES transactions ON DELETE CASCADE,
    record         INTEGER NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('intent', 'outcome', 'state')),
    seq            INTEGER,
    step_index     INTEGER,
    direction      TEXT,
    attempt        INTEGER,
    result         TEXT,
    at_unix_ns     INTEGER NOT NULL,
    record_json    TEXT NOT NULL,
    prev_sha256    BLOB NOT NULL CHECK (length(prev_sha256) = 32),
    sha256         BLOB NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (transaction_id, record)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    drive_id                   INTEGER NOT NULL REFERENCES drives,
    name                       TEXT NOT NULL,
    began_at_unix_ns           INTEGER NOT NULL,
    address                    TEXT NOT NULL,
    is_simulated               INTEGER NOT NULL CHECK (is_simulated IN (0, 1)),
    firmware                   TEXT NOT NULL,
    cntlid                     INTEGER NOT NULL,
    nsid                       INTEGER NOT NULL,
    nguid                      TEXT NOT NULL,
    eui64                      TEXT NOT NULL,
    lba_data_bytes             INTEGER NOT NULL,
    lba_metadata_bytes         INTEGER NOT NULL,
    drive_capacity_bytes       BLOB CHECK (length(drive_capacity_bytes) = 16),
    over_provisioning_permille INTEGER,
    power_state                INTEGER,
    apst                       TEXT NOT NULL,
    link                       TEXT NOT NULL,
    host                       TEXT NOT NULL,
    kernel                     TEXT NOT NULL,
    nvop_version               TEXT NOT NULL,
    seed                       TEXT NOT NULL,
    capacity_bytes             INTEGER NOT NULL,
    time_lapse                 INTEGER NOT NULL,
    header_json                TEXT NOT NULL,
    state                      TEXT NOT NULL,
    stop_reason                TEXT NOT NULL,
    last_checkpoint            INTEGER NOT NULL,
    next_second                INTEGER NOT NULL,
    thinned_to_second          INTEGER NOT NULL,
    rows_total                 INTEGER NOT NULL,
    read_ops                   INTEGER NOT NULL,
    write_ops                  INTEGER NOT NULL,
    read_bytes                 INTEGER NOT NULL,
    write_bytes                INTEGER NOT NULL,
    read_errors                INTEGER NOT NULL,
    write_errors               INTEGER NOT NULL,
    events                     INTEGER NOT NULL,
    events_head_sha256         BLOB NOT NULL CHECK (length(events_head_sha256) = 32)
) STRICT;

CREATE TABLE phases (
    run_id             INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    phase              INTEGER NOT NULL,
    kind               TEXT NOT NULL,
    pattern            TEXT NOT NULL,
    read_percent       INTEGER NOT NULL,
    block_bytes        INTEGER NOT NULL,
    depth              INTEGER NOT NULL,
    end_bytes          INTEGER,
    end_drive_writes_milli INTEGER,
    end_passes         INTEGER,
    end_duration_ns    INTEGER,
    active_ns          INTEGER,
    read_ops           INTEGER,
    write_ops          INTEGER,
    read_bytes         INTEGER,
    write_bytes        INTEGER,
    read_iops          INTEGER,
    write_iops         INTEGER,
    read_p99_ns        INTEGER,
    write_p99_ns       INTEGER,
    result_json        TEXT,
    PRIMARY KEY (run_id, phase)
) STRICT, WITHOUT ROWID;

CREATE TABLE rows (
    run_id              INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    second              INTEGER NOT NULL,
    at_unix_ns          INTEGER NOT NULL,
    mono_ns             INTEGER NOT NULL,
    phase               INTEGER NOT NULL,
    active_ns           INTEGER NOT NULL,
    read_ops            INTEGER NOT NULL,
    write_ops           INTEGER NOT NULL,
    read_bytes          INTEGER NOT NULL,
    write_bytes         INTEGER NOT NULL,
    read_errors         INTEGER NOT NULL,
    write_errors        INTEGER NOT NULL,
    read_measured_ops   INTEGER NOT NULL,
    read_mean_ns        INTEGER,
    read_p99_ns         INTEGER,
    read_p999_ns        INTEGER,
    read_max_ns         INTEGER,
    write_measured_ops  INTEGER NOT NULL,
    write_mean_ns       INTEGER,
    write_p99_ns        INTEGER,
    write_p999_ns       INTEGER,
    write_max_ns        INTEGER,
    in_flight           INTEGER NOT NULL,
    temperature_celsius INTEGER,
    flags               INTEGER NOT NULL,
    PRIMARY KEY (run_id, second)
) STRICT, WITHOUT ROWID;

CREATE TABLE minutes (
    run_id              INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    minute              INTEGER NOT NULL,
    phase               INTEGER NOT NULL,
    first_second        INTEGER NOT NULL,
    seconds             INTEGER NOT NULL CHECK (seconds BETWEEN 1 AND 60),
    at_unix_ns          INTEGER NOT NULL,
    mono_ns             INTEGER NOT NULL,
    active_ns           INTEGER NOT NULL,
    read_ops            INTEGER NOT NULL,
    write_ops           INTEGER NOT NULL,
    read_bytes          INTEGER NOT NULL,
    write_bytes         INTEGER NOT NULL,
    read_errors         INTEGER NOT NULL,
    write_errors        INTEGER NOT NULL,
    read_measured_ops   INTEGER NOT NULL,
    read_mean_ns        INTEGER,
    read_p99_ns         INTEGER,
    read_p999_ns        INTEGER,
    read_max_ns         INTEGER,
    write_measured_ops  INTEGER NOT NULL,
    write_mean_ns       INTEGER,
    write_p99_ns        INTEGER,
    write_p999_ns       INTEGER,
    write_max_ns        INTEGER,
    in_flight           INTEGER NOT NULL,
    temperature_celsius INTEGER,
    flags               INTEGER NOT NULL,
    PRIMARY KEY (run_id, minute, phase)
) STRICT, WITHOUT ROWID;

CREATE TABLE gaps (
    run_id            INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    gap               INTEGER NOT NULL,
    second            INTEGER NOT NULL,
    seconds           INTEGER NOT NULL CHECK (seconds >= 0),
    at_unix_ns        INTEGER NOT NULL,
    reason            TEXT NOT NULL,
    uncounted_ops_max INTEGER NOT NULL,
    PRIMARY KEY (run_id, gap)
) STRICT, WITHOUT ROWID;

CREATE TABLE histograms (
    run_id   INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    second   INTEGER NOT NULL,
    phase    INTEGER NOT NULL,
    is_write INTEGER NOT NULL CHECK (is_write IN (0, 1)),
    seconds  INTEGER NOT NULL,
    encoded  BLOB NOT NULL,
    PRIMARY KEY (run_id, second, phase, is_write)
) STRICT;

CREATE TABLE samples (
    run_id                      INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    sample                      INTEGER NOT NULL,
    second                      INTEGER NOT NULL,
    at_unix_ns                  INTEGER NOT NULL,
    duration_ns                 INTEGER NOT NULL,
    engine_write_bytes          INTEGER NOT NULL,
    kept_because                INTEGER NOT NULL,
    failure                     TEXT,
    firmware                    TEXT,
    format                      TEXT,
    identity                    TEXT,
    percentage_used             INTEGER,
    spare_percent               INTEGER,
    spare_threshold_percent     INTEGER,
    critical_warning            INTEGER,
    temperature_kelvin          INTEGER,
    host_read_units             BLOB CHECK (length(host_read_units) = 16),
    media_errors                BLOB CHECK (length(media_errors) = 16),
    unsafe_shutdowns            BLOB CHECK (length(unsafe_shutdowns) = 16),
    power_cycles                BLOB CHECK (length(power_cycles) = 16),
    power_on_hours              BLOB CHECK (length(power_on_hours) = 16),
    error_log_entries           BLOB CHECK (length(error_log_entries) = 16),
    warning_temperature_minutes  INTEGER,
    critical_temperature_minutes INTEGER,
    thermal_transitions         INTEGER,
    thermal_seconds             INTEGER,
    PRIMARY KEY (run_id, sample)
) STRICT, WITHOUT ROWID;

CREATE INDEX samples_thinnable ON samples (run_id, second) WHERE kept_because = 0;

CREATE TABLE counter_sources (
    source_id  INTEGER PRIMARY KEY,
    source     TEXT NOT NULL,
    unit_bytes INTEGER NOT NULL,
    UNIQUE (source, unit_bytes)
) STRICT;

CREATE TABLE counters (
    run_id       INTEGER NOT NULL,
    sample       INTEGER NOT NULL,
    is_media     INTEGER NOT NULL CHECK (is_media IN (0, 1)),
    preference   INTEGER NOT NULL,
    source_id    INTEGER NOT NULL REFERENCES counter_sources,
    units        BLOB NOT NULL CHECK (length(units) = 16),
    units_after  BLOB CHECK (length(units_after) = 16),
    PRIMARY KEY (run_id, sample, is_media, preference),
    FOREIGN KEY (run_id, sample) REFERENCES samples ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE VIEW counter_edges AS
    SELECT run_id, sample, second, at_unix_ns, is_media, source, unit_bytes, units, units_after
    FROM samples JOIN counters USING (run_id, sample) JOIN counter_sources USING (source_id)
    WHERE kept_because & 1;

CREATE TABLE events (
    run_id      INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    event       INTEGER NOT NULL,
    second      INTEGER NOT NULL,
    at_unix_ns  INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    text        TEXT NOT NULL,
    op          TEXT,
    lba         INTEGER,
    blocks      INTEGER,
    status      INTEGER,
    occurrences INTEGER,
    prev_sha256 BLOB NOT NULL CHECK (length(prev_sha256) = 32),
    sha256      BLOB NOT NULL CHECK (length(sha256) = 32),
    PRIMARY KEY (run_id, event)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    run_id          INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    checkpoint      INTEGER NOT NULL,
    at_unix_ns      INTEGER NOT NULL,
    next_second     INTEGER NOT NULL,
    phase           INTEGER NOT NULL,
    pass            INTEGER NOT NULL,
    low_water       INTEGER NOT NULL,
    reserved_high   INTEGER NOT NULL,
    checkpoint_json TEXT NOT NULL,
    PRIMARY KEY (run_id, checkpoint)
) STRICT;

CREATE TABLE verdicts (
    run_id           INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
    checkpoint       INTEGER NOT NULL,
    state            TEXT NOT NULL,
    reason           TEXT NOT NULL,
    exit_code        INTEGER NOT NULL,
    waf_micro        INTEGER,
    waf_error_micro  INTEGER,
    waf_host_bytes   BLOB CHECK (length(waf_host_bytes) = 16),
    waf_media_bytes  BLOB CHECK (length(waf_media_bytes) = 16),
    waf_first_second INTEGER,
    waf_last_second  INTEGER,
    is_waf_settled   INTEGER CHECK (is_waf_settled IN (0, 1)),
    health_percent   INTEGER,
    spare_percent    INTEGER,
    verdict_json     TEXT NOT NULL,
    PRIMARY KEY (run_id, checkpoint)
) STRICT;
