"""The dashboard of a mesh in marimo: `marimo run notebooks/marimo_dashboard.py`.

There are no magics in marimo. A mesh is brought up by a call, and `mesh.run` sends it cells; `run.finished.get()` would
wait for them, and clicks with it: marimo hears of the browser between two cells.
"""

import marimo  # pyright: ignore[reportMissingImports] - not among what meshbook needs

app = marimo.App()


@app.cell
def _():
    import marimo as mo  # pyright: ignore[reportMissingImports]

    from meshbook.kernel.mesh import Mesh
    from meshbook.magics.dash import dashboard_of

    return Mesh, dashboard_of, mo


@app.cell
def _(Mesh):
    mesh = Mesh.up("m", {"dp": 2, "tp": 2}, device="cpu", backend="none")
    return (mesh,)


@app.cell
def _(dashboard_of, mesh, mo):
    dashboard = mo.ui.anywidget(dashboard_of(mesh))
    dashboard  # noqa: B018  # pyright: ignore[reportUnusedExpression] - what a cell of marimo ends with is shown
    return (dashboard,)


@app.cell
def _(mesh):
    run = mesh.run(
        """
import time, meshbook
for step in meshbook.progress(range(500), desc="step"):
    meshbook.log(step=step, loss=0.97**step + 0.02 * rank)
    time.sleep(0.02)
"""
    )
    return (run,)


if __name__ == "__main__":
    app.run()
