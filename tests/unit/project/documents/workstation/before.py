"""A machine with a GPU of AMD that no container can use."""

from pathlib import Path

import hosts

FILES = {
    "/dev/dri/renderD128": "",
    "/sys/class/drm/renderD128/device/vendor": "0x1002\n",
    "/sys/module/amdgpu/initstate": "live\n",
    "/sys/module/amdgpu/version": "6.10.5\n",
}
hosts.write(Path("machine"), FILES)
