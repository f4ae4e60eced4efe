# Builds the container image from the Debian package. Sourced after systemd/deb/build.sh by ./package and by tests.
# shellcheck shell=bash

# Debian's newest release: libraries that NVIDIA's container runtime takes from the host may need a glibc as new as the host's.
base_release=trixie
# visiond needs libc6 and libgcc-s1, the certificates and the time zones; NVIDIA's libraries and ONNX Runtime need libstdc++6.
# NVIDIA's container runtime writes to libc-bin's /etc/ld.so.conf.d, and learns from base-files that the folders are Debian's.
base_packages=(base-files ca-certificates gcc-14-base libc-bin libc6 libgcc-s1 libstdc++6 tzdata)

fetch_base() { # ARCH FOLDER: Debian's packages of the image, in their newest versions
  local lists=${VISIOND_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/visiond}/oci/$1 log=$2/log
  [ -s /usr/share/keyrings/debian-archive-keyring.gpg ] || die "cannot check Debian's packages: install debian-archive-keyring"
  # shellcheck source=tests/vm/apt.sh
  . tests/vm/apt.sh
  if ! { apt_setup "$lists" "$1" $base_release security && (cd "$2" && apt_get download "${base_packages[@]}"); } >"$log" 2>&1; then
    die "cannot download Debian's packages for the image: $(grep -m1 '^[EW]:' "$log"); check the network, or set VISIOND_DEBIAN_MIRROR"
  fi
  rm "$log"
}

build_image() { # ARCH DEB FOLDER: writes FOLDER/visiond_VERSION_ARCH.oci.tar and prints its path
  local image=${2##*/} base
  image=$3/${image%.deb}.oci.tar
  say "making the container image for $1"
  base=$(mktemp -d)
  fetch_base "$1" "$base"
  python3 systemd/oci/image.py "$image.new" "$2" "$base"/*.deb
  rm -rf "$base" "$3"/visiond_*_"$1".oci.tar
  mv "$image.new" "$image"
  echo "$image"
}
