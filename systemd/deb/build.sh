# Builds the Debian package from the sources. Sourced by ./package and by tests.
# shellcheck shell=bash

# All users may read the packaged files.
umask 022

# The oldest glibc that the binary supports: JetPack 5's.
glibc=2.31

say() { printf '%s\n' "$*" >&2; }
die() { say "package: $*"; exit 1; }

triple() { # ARCH: Rust's name for it
  case "$1" in
    arm64) echo aarch64-unknown-linux-gnu ;;
    amd64) echo x86_64-unknown-linux-gnu ;;
  esac
}

# target/package/ARCH/visiond of each. One call of Cargo: what runs while it builds (macros, build scripts) is built once, and the
# last minutes of each, which are one core's, run side by side.
build_binaries() { # ARCH...
  local arch target cross targets=()
  cross=$(tests/setup --package)
  for arch; do
    target=$(triple "$arch")
    rust_for "$target"
    targets+=(--target "$target.$glibc")
  done
  say "building visiond for $* (the first time takes some minutes)"
  env ${rust[@]+"${rust[@]}"} CARGO_TARGET_DIR="$CARGO_TARGET_DIR/cross" CARGO_ZIGBUILD_ZIG_PATH="$cross/zig/zig" \
    "$cross/cargo-zigbuild" zigbuild --quiet --release --locked --package visiond "${targets[@]}"
  for arch; do
    target=$CARGO_TARGET_DIR/cross/$(triple "$arch")/release/visiond
    check_binary "$target"
    install -D -m 755 "$target" "target/package/$arch/visiond"
  done
}

# Makes sure that Rust's standard library for the target is there. If rustup cannot add it, `rust` names Debian's compiler, which has
# it for both.
rust=()
rust_for() { # TRIPLE
  [ ! -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || return 0
  if command -v rustup >/dev/null && rustup target add "$1" >&2; then return 0; fi
  say "rustup cannot add $1: using Debian's compiler instead"
  local folder
  folder=$(systemd/deb/rust-from-debian) || die "cannot install Rust's standard library for $1: rustup and Debian's rustc-web both failed; check the network"
  rust=("RUSTC=$folder/usr/bin/rustc" "LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu")
}

# A symbol of a newer glibc makes the program unusable on older systems: "version `GLIBC_2.34' not found".
check_binary() { # FILE
  local newest
  newest=$(readelf --version-info --wide "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n1)
  [ -n "$newest" ] || die "$1 does not require any version of glibc: is it the right file?"
  [ "$(printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V | tail -n1)" = "GLIBC_$glibc" ] ||
    die "$1 requires $newest, but the package supports GLIBC_$glibc and newer"
}

# The same sources produce the same package.
set_date() {
  [ -n "${SOURCE_DATE_EPOCH-}" ] || SOURCE_DATE_EPOCH=$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || date +%s)
  export SOURCE_DATE_EPOCH
}

# Prints the manual pages and shell completions, which are the same for both architectures.
print_texts() { # PROGRAM FOLDER
  set_date
  rm -rf "$2"
  mkdir -p "$2"
  "$1" man --directory "$2/man"
  gzip -9n "$2"/man/*/*
  "$1" completions bash >"$2/visiond.bash"
  "$1" completions zsh >"$2/_visiond"
  "$1" completions fish >"$2/visiond.fish"
}

version_of_sources() {
  cargo metadata --no-deps --offline --format-version 1 | grep -o '"name":"visiond","version":"[^"]*"' | cut -d'"' -f8
}

build_deb() { # ARCH BINARY TEXTS VERSION FOLDER: writes FOLDER/visiond_VERSION_ARCH.deb and prints its path
  local arch=$1 binary=$2 texts=$3 version=$4 deb=$5/visiond_$4_$1.deb tree doc file
  set_date
  tree=$(mktemp -d)
  # mktemp's folder is private, and it becomes the package's root.
  chmod 755 "$tree"
  put() { install -D -m 644 -t "$tree/$1" "${@:2}"; } # FOLDER FILE...
  install -D -m 755 "$binary" "$tree/usr/bin/visiond"
  put etc/visiond systemd/deb/visiond.toml
  put usr/lib/systemd/system systemd/visiond.service systemd/visiond@.service systemd/visiond.socket systemd/visiond-bundles.service
  put usr/lib/sysusers.d systemd/sysusers.d/visiond.conf
  put usr/lib/tmpfiles.d systemd/tmpfiles.d/visiond.conf
  put usr/lib/udev/rules.d systemd/udev/70-visiond.rules
  put usr/share/visiond/systemd systemd/*.conf
  put usr/share/visiond/models config/models/*.onnx config/models/*.toml
  put usr/share/visiond/homeassistant config/homeassistant/*.yaml
  put usr/share/visiond/container config/container/*
  put usr/share/visiond/schema docs/*.schema.json docs/openapi.json
  put usr/share/visiond/grafana docs/grafana/visiond.json
  put usr/share/visiond/prometheus docs/prometheus/alerts.yml
  put usr/share/man/man1 "$texts"/man/man1/*
  put usr/share/man/man5 "$texts"/man/man5/*
  install -D -m 644 "$texts/visiond.bash" "$tree/usr/share/bash-completion/completions/visiond"
  put usr/share/zsh/vendor-completions "$texts/_visiond"
  put usr/share/fish/vendor_completions.d "$texts/visiond.fish"

  install -D -m 644 systemd/deb/lintian-overrides "$tree/usr/share/lintian/overrides/visiond"

  doc=$tree/usr/share/doc/visiond
  put usr/share/doc/visiond/examples config/visiond.toml
  cargo run --quiet --locked --package visiond-licences -- "$(triple "$arch")" >"$doc/copyright"
  debian_changelog "$version" | gzip -9n >"$doc/changelog.Debian.gz"
  # Links to the sources become plain text.
  sed -zE 's#\[(docs/)?([^][]*)\]\([A-Za-z][^():]*\)#\2#g' CHANGELOG.md | gzip -9n >"$doc/changelog.gz"
  # The examples name the models by a path inside the sources.
  for file in config/examples/*.toml; do
    sed 's|"\.\./models/|"/usr/share/visiond/models/|' "$file" >"$doc/examples/${file##*/}"
  done
  put_documents "$doc"

  mkdir "$tree/DEBIAN"
  echo /etc/visiond/visiond.toml >"$tree/DEBIAN/conffiles"
  sed "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@GLIBC@/$glibc/; s/@SIZE@/$(du -sk --exclude=DEBIAN "$tree" | cut -f1)/" \
    systemd/deb/control >"$tree/DEBIAN/control"
  install -m 755 -t "$tree/DEBIAN" systemd/deb/postinst systemd/deb/prerm systemd/deb/postrm
  install -m 644 -t "$tree/DEBIAN" systemd/deb/triggers
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  mkdir -p "${deb%/*}"
  dpkg-deb --root-owner-group -Zxz --build "$tree" "$deb.new" >/dev/null
  # Remove packages of other versions, so that `visiond_*` names one file.
  rm -rf "$tree" "${deb%/*}"/visiond_*_"$arch".deb
  mv "$deb.new" "$deb"
  echo "$deb"
}

# Installs the documents for users of visiond. Links to packaged files follow them; others become plain text.
put_documents() { # DOC
  local file target
  for file in docs/*.md; do
    case ${file##*/} in design.md | tour.md) continue ;; esac
    sed -zE -e 's#\]\(\.\./config/visiond\.toml#](examples/visiond.toml#g' -e 's#\]\(\.\./config/examples#](examples#g' \
      -e 's#\]\(\.\./config/(models|homeassistant|container)#](../../visiond/\1#g' -e 's#\]\((prometheus|grafana)/#](../../visiond/\1/#g' \
      -e 's#\]\(([a-z.-]*schema\.json|openapi\.json)#](../../visiond/schema/\1#g' "$file" >"$1/${file##*/}"
  done
  put usr/share/doc/visiond/pictures docs/pictures/*.jpg
  for file in "$1"/*.md; do
    while read -r target; do
      [[ $target = *:* || -e $1/$target ]] || sed -i -zE "s#\[([^][]*)\]\(${target//./\\.}[^()]*\)#\1#g" "$file"
    done < <(grep -oE '\]\([^()# ]+' "$file" | cut -c3- | sort -u)
  done
}

debian_changelog() { # VERSION
  printf 'visiond (%s) stable; urgency=medium\n\n  * Built from the sources; changelog.gz has the changes.\n\n' "$1"
  printf ' -- %s  %s\n' "$(sed -n 's/^Maintainer: //p' systemd/deb/control)" "$(date -R --date="@$SOURCE_DATE_EPOCH")"
}
