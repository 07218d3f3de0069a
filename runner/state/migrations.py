"""Defines the tables of the store, version by version. A released version is never edited: append the next one."""

from __future__ import annotations

VERSION_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE jobs (
        id TEXT PRIMARY KEY, seq INTEGER NOT NULL UNIQUE, name TEXT NOT NULL, spec TEXT NOT NULL, origin TEXT NOT NULL,
        state TEXT NOT NULL, reason TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
        knobs TEXT NOT NULL, settled INTEGER NOT NULL, cancel INTEGER NOT NULL)""",
    """CREATE TABLE attempts (
        job_id TEXT NOT NULL REFERENCES jobs (id), number INTEGER NOT NULL, data TEXT NOT NULL,
        PRIMARY KEY (job_id, number))""",
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, job_id TEXT NOT NULL, attempt INTEGER,
        kind TEXT NOT NULL, data TEXT NOT NULL)""",
    "CREATE INDEX events_of_job ON events (job_id, seq)",
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT raise(ABORT, 'events are only ever added'); END",
    "CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT raise(ABORT, 'events are only ever added'); END",
)

# Verdicts on checkpoints are stored, so that a restarted controller does not load the same files again.
VERSION_2 = (
    """CREATE TABLE verdicts (
        job_id TEXT NOT NULL, fingerprint TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (job_id, fingerprint))""",
)

# A GPU has at most one lease, because its UUID is the key. `stale` are attempts that were given up while their host was
# unreachable; their GPUs are free only when the host has been asked.
VERSION_3 = (
    """CREATE TABLE leases (
        gpu TEXT PRIMARY KEY, host TEXT NOT NULL, job_id TEXT NOT NULL REFERENCES jobs (id), attempt INTEGER NOT NULL,
        taken_at REAL NOT NULL)""",
    """CREATE TABLE stale (
        job_id TEXT NOT NULL REFERENCES jobs (id), attempt INTEGER NOT NULL, host TEXT NOT NULL, since REAL NOT NULL,
        PRIMARY KEY (job_id, attempt))""",
)

# Validations of a precision against FP32; `digest` identifies what was compared, so that a verdict can be reused.
VERSION_4 = (
    """CREATE TABLE validations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL, open INTEGER NOT NULL, data TEXT NOT NULL)""",
)

# A host reports the UUIDs of its GPUs itself. The key has the host, so that no host can block a GPU of another one.
VERSION_5 = (
    "ALTER TABLE leases RENAME TO old_leases",
    """CREATE TABLE leases (
        gpu TEXT NOT NULL, host TEXT NOT NULL, job_id TEXT NOT NULL REFERENCES jobs (id), attempt INTEGER NOT NULL,
        taken_at REAL NOT NULL, PRIMARY KEY (host, gpu))""",
    "INSERT INTO leases SELECT gpu, host, job_id, attempt, taken_at FROM old_leases",
    "DROP TABLE old_leases",
    # Some of these run code when they are loaded, so they are examined again.
    "DELETE FROM verdicts WHERE data LIKE '%\"needs_allow_list\"%'",
)

# Jobs that `rung rm` removes; `ended_at` NULL: not all of their files are gone yet. Their rows stay, because the ledger
# counts attempts, and because no later job may get an id that hosts have seen.
VERSION_6 = (
    "CREATE TABLE removals (job_id TEXT PRIMARY KEY REFERENCES jobs (id), begun_at REAL NOT NULL, ended_at REAL)",
    """CREATE VIEW listed_jobs AS
        SELECT * FROM jobs WHERE id NOT IN (SELECT job_id FROM removals WHERE ended_at IS NOT NULL)""",
)

# The jobs of one `rung launch --grid`: at most `at_once` of them run (NULL: no limit), each with its own settings.
VERSION_7 = (
    "CREATE TABLE job_groups (id TEXT PRIMARY KEY, at_once INTEGER, created_at REAL NOT NULL)",
    """CREATE TABLE grouped_jobs (
        job_id TEXT PRIMARY KEY REFERENCES jobs (id), group_id TEXT NOT NULL REFERENCES job_groups (id),
        settings TEXT NOT NULL)""",
)

# Messages to people. `outbox_cursor` is the last event that was turned into messages, written in one transaction with
# them. `begun_at`: a send whose end nobody has recorded, so that the message may have arrived. No URL is ever here.
VERSION_8 = (
    "CREATE TABLE outbox_cursor (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL)",
    """CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, event INTEGER NOT NULL, target TEXT NOT NULL, topic TEXT NOT NULL,
        occasions TEXT NOT NULL, text TEXT NOT NULL, due_at REAL NOT NULL, begun_at REAL,
        UNIQUE (event, target, topic))""",
    """CREATE TABLE outbox_targets (
        name TEXT PRIMARY KEY, sent INTEGER NOT NULL DEFAULT 0, sent_at REAL, error TEXT, error_at REAL,
        left_out INTEGER NOT NULL DEFAULT 0)""",
)

# The jobs that a controller attends to in every turn: those that have ended, however many, cost nothing.
VERSION_9 = ("CREATE INDEX active_jobs ON jobs (seq) WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED')",)

# An attempt on several hosts may be given up: each of them is asked by itself, and its GPUs are free when it answers.
VERSION_10 = (
    "ALTER TABLE stale RENAME TO old_stale",
    """CREATE TABLE stale (
        job_id TEXT NOT NULL REFERENCES jobs (id), attempt INTEGER NOT NULL, host TEXT NOT NULL, since REAL NOT NULL,
        PRIMARY KEY (job_id, attempt, host))""",
    "INSERT INTO stale SELECT job_id, attempt, host, since FROM old_stale",
    "DROP TABLE old_stale",
)

MIGRATIONS = (
    VERSION_1,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    VERSION_5,
    VERSION_6,
    VERSION_7,
    VERSION_8,
    VERSION_9,
    VERSION_10,
)
