from pathlib import Path

import golden_world

for name, text in golden_world.LOCKED.items():
    Path(Path(name).name).write_text(text)
