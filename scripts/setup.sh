# Sourced by scripts/demo and scripts/test: makes a virtual environment with buildmatrix in it and,
# as root on Debian, installs missing system packages. `source setup.sh demo` installs what building
# needs, and no more: the package with its runtime dependencies. `source setup.sh test` installs all;
# Debian's packages may still be on their way until `packages_ready`.
set -euo pipefail
# Set in many images: then each of a thousand commands of the tests compiles all that it imports.
unset PYTHONDONTWRITEBYTECODE
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=$1

# during TEXT COMMAND...: print what begins, and every 5 s that it goes on.
during() {
  local text=$1 began=$SECONDS code=0 timer beat
  shift
  printf '== %s\n' "$text" >&2
  # A pipe that nobody writes to: a `sleep` would outlive the loop.
  exec {timer}<> <(:)
  while ! read -rt 5 -u "$timer"; do
    printf '   %s: %d s\n' "$text" $((SECONDS - began)) >&2
  done &
  beat=$!
  "$@" || code=$?
  kill "$beat"
  wait "$beat" 2>/dev/null || true
  exec {timer}>&-
  return "$code"
}

# need COMMAND PACKAGE...: remember the packages if the command is missing.
missing=()
need() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}"); }

need python3 python3
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
first=("${missing[@]}")
missing=()
if [[ $kind == test ]]; then
  need git git
  need gcc gcc libc6-dev
  need readelf binutils
  # Runs the smoke commands of an image that was built without Docker and without root.
  if [[ -n ${CI:-} || $(id -u) == 0 ]]; then need bwrap bubblewrap; fi
  # Pages are looked at in a browser, with the letters that reference pictures were taken with.
  # Their tests say what is missing on a user's machine.
  if [[ -n ${CI:-} ]]; then
    need chromium chromium
    [[ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]] || missing+=(fonts-dejavu-core)
  fi
  # A runner of GitLab's jobs (gitlab-ci-local) copies and fetches with them.
  if [[ -n ${CI:-} ]]; then need rsync rsync; need ssh openssh-client; fi
  # Judge what is written into registries and layouts.
  if [[ -n ${CI:-} ]]; then need skopeo skopeo; need umoci umoci; need podman podman; fi
  # LLVM's tools, which tests unpack, load it.
  if [[ -n ${CI:-} && ! -e /usr/lib/$(uname -m)-linux-gnu/libcurl.so.4 ]]; then
    missing+=(libcurl4)
  fi
  # Builds and installs packages whose database is read.
  if [[ -n ${CI:-} ]]; then need rpmbuild rpm; fi
  # Its library reads archives and documents as engines do.
  if [[ -n ${CI:-} ]] && ! command -v go >/dev/null; then need gccgo gccgo; fi
  # Run commands of images beside podman, which depends on either and is satisfied with one.
  if [[ -n ${CI:-} ]]; then need crun crun; [[ -x /usr/sbin/runc ]] || need runc runc; fi
  # A batch system of this machine's own starts workers of `fleet`.
  if [[ -n ${CI:-} ]]; then
    need slurmctld slurmctld; need slurmd slurmd; need sbatch slurm-client; need munged munge
  fi
  # musl's loader proves the model of it. Without it that test is skipped on a user's machine.
  if [[ ! -e /lib/ld-musl-$(uname -m).so.1 && ( -n ${CI:-} || $(id -u) == 0 ) ]] &&
    command -v apt-get >/dev/null; then missing+=(musl); fi
fi

install_packages() {
  during "installing $*" env DEBIAN_FRONTEND=noninteractive apt-get install -qqy \
    -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io --no-install-recommends "$@" >&2
}

packages=
if ((${#first[@]} + ${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    during "reading Debian's package lists" apt-get update -qq
    if ((${#first[@]})); then install_packages "${first[@]}"; fi
    # The rest beside the virtual environment and what is run in it, which need none of it.
    if ((${#missing[@]})); then
      trap wait EXIT
      install_packages "${missing[@]}" &
      packages=$!
    fi
  else
    missing=("${first[@]}" "${missing[@]}")
    echo "missing: ${missing[*]}; install these packages first" >&2
    exit 5
  fi
fi

python3 - <<'PYTHON' || exit 2
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
PYTHON

# The environment is made again when the declared dependencies or the interpreter change. Tests add
# theirs to that of the demo.
stamp=$(cat pyproject.toml <(python3 --version) | sha256sum | cut -d' ' -f1)
made=$(cat .venv/stamp 2>/dev/null || true)
if [[ ${made% *} != "$stamp" ]]; then
  during "making the virtual environment .venv" python3 -m venv --clear .venv
  during "installing uv" .venv/bin/python -m pip install -q --disable-pip-version-check uv
  made="$stamp none"
fi
if [[ $made != *" test" && $made != *" $kind" ]]; then
  wanted=(-e .)
  if [[ $kind == test ]]; then wanted+=(--group dev); fi
  during "installing buildmatrix and its dependencies" \
    .venv/bin/uv pip install -q --python .venv/bin/python "${wanted[@]}"
  echo "$stamp $kind" >.venv/stamp
fi
export PATH="$PWD/.venv/bin:$PATH"

# packages_ready: wait for Debian's packages.
packages_ready() {
  if [[ -z $packages ]]; then return; fi
  wait "$packages"
  packages=
  trap - EXIT
}

# stack_up: a Docker engine, a registry and base images, unless they are there. What this call
# starts is stopped on exit; what somebody else started goes on.
stack_up() {
  stack_begin "$@"
  stack_ready
}

# stack_begin: the same, beside what follows until `stack_ready`.
stack_begin() {
  own=
  if ! python3 -m scripts.stack status | grep -q '"dockerd": [0-9]'; then own=yes; fi
  trap stack_end EXIT
  python3 -m scripts.stack up "$@" &
  stack=$!
}

stack_ready() {
  wait "$stack"
  # On one line of its own: `eval "$(false)"` would hide a failure.
  local variables
  variables=$(python3 -m scripts.stack env)
  eval "$variables"
}

# Ends what runs in the background, too.
stack_end() {
  local process
  for process in $(jobs -pr); do
    kill "$process" || true
    wait "$process" || true
  done
  if [[ -n $own ]]; then python3 -m scripts.stack down; fi
}
