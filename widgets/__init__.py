"""What the notebook draws: results, output, dashboard, debugger console; each with a static twin."""
