# shellcheck shell=bash
# Debian's packages for another release and architecture, without touching the host's own lists. Sourced.

# Sets up a folder for `apt_get`: apt_setup FOLDER ARCH RELEASE [security]
apt_setup() {
  mkdir -p "$1"/state/lists/partial "$1"/cache/archives/partial
  : >"$1/state/status"
  local mirror=${VISIOND_DEBIAN_MIRROR:-http://deb.debian.org/debian} signed=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [$signed] $mirror $3 main" >"$1/sources.list"
  # Only on request: of a release that is out of support, the pool of security updates is gone while its lists still name it.
  [ "${4-}" != security ] || echo "deb [$signed] $mirror-security $3-security main" >>"$1/sources.list"
  apt_options=(-qq -o "Dir::State=$1/state" -o "Dir::State::status=$1/state/status" -o "Dir::Cache=$1/cache"
    -o "Dir::Etc::sourcelist=$1/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o "APT::Architecture=$2" -o "APT::Architectures::=$2" -o APT::Sandbox::User=root -o Acquire::Languages=none
    -o Acquire::Retries=3)
  apt-get "${apt_options[@]}" update
}

# apt-get of the folder that was set up last.
apt_get() { apt-get "${apt_options[@]}" "$@"; }

# Names a package's dependencies that match a pattern: apt_depends PACKAGE PATTERN
apt_depends() { apt-cache "${apt_options[@]}" show --no-all-versions "$1" | sed -n 's/^Depends: //p' | grep -o -- "$2" | head -n1; }
