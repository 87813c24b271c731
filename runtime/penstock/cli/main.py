"""The application `penstock` with all commands."""

from __future__ import annotations

from penstock.cli.access.connection import with_tls_options
from penstock.cli.application import OPTIONS_FIRST, new_application
from penstock.cli.commands import (
    autoscaler,
    cluster,
    dev,
    doctor,
    fetch,
    history,
    jobs,
    logs,
    roles,
    run,
    savepoint,
    stacks,
    state,
    top,
    validate,
)
from penstock.cli.commands.projects import examples, init
from penstock.cli.commands.sessions import session
from penstock.cli.commands.sql import sql, sql_gateway

app = new_application()
app.command("init")(init.init)
app.command("examples")(examples.examples)
run.register(app)
app.command("dev", context_settings=OPTIONS_FIRST)(dev.dev)
app.command("list")(with_tls_options(jobs.list_jobs))
app.command("info")(with_tls_options(jobs.info))
app.command("top")(with_tls_options(top.top))
app.command("logs")(with_tls_options(logs.logs))
app.command("output")(with_tls_options(logs.output))
app.command("stacks")(with_tls_options(stacks.stacks))
app.command("flamegraph")(with_tls_options(stacks.flame_graph))
app.command("peek")(with_tls_options(stacks.peek))
app.command("checkpoints")(with_tls_options(jobs.checkpoints))
app.command("checkpoint")(with_tls_options(savepoint.checkpoint))
app.command("savepoint")(with_tls_options(savepoint.savepoint))
app.command("stop")(with_tls_options(jobs.stop))
app.command("cancel")(with_tls_options(jobs.cancel))
app.command("rescale")(with_tls_options(jobs.rescale))
app.command("modify", hidden=True)(with_tls_options(jobs.rescale))
app.command("cluster")(with_tls_options(cluster.cluster))
app.command("dashboard")(cluster.dashboard)
app.command("doctor")(doctor.doctor)
app.command("fetch", hidden=True)(fetch.fetch)
app.command("validate")(validate.validate)
app.command("sql")(sql.sql)
app.command("sql-gateway")(sql_gateway.sql_gateway)
roles.register(app)
app.add_typer(session.app, name="session")
app.add_typer(state.app, name="state")
app.add_typer(history.app, name="history")
app.add_typer(autoscaler.app, name="autoscaler")
