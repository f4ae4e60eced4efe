# Sourced by ./package: from sources to a package.
# shellcheck shell=bash

triple() { # ARCH: Rust's name for it
  case "$1" in
    arm64) echo aarch64-unknown-linux-gnu ;;
    amd64) echo x86_64-unknown-linux-gnu ;;
  esac
}

# bindgen reads the kernel's V4L2 headers with libclang, which has its own headers beside it and needs the target's libc's.
bindgen_arguments() { # TRIPLE ZIG: options of clang
  local own libc=$2/lib/libc/include machine=${1%%-*}
  own=$(printf '%s\n' /usr/lib/llvm-*/lib/clang/*/include | sort -V | tail -n1)
  [ -e "$own/stddef.h" ] || die "libclang's own headers are missing: install libclang-dev, then run this again."
  [ "$machine" != x86_64 ] || machine=x86
  printf '%s' "-nostdinc -isystem $own -isystem $libc/$machine-linux-gnu -isystem $libc/generic-glibc" \
    " -isystem $libc/$machine-linux-any -isystem $libc/any-linux-any"
}

build_binary() { # ARCH: target/package/ARCH/visiond
  local arch=$1 target cross
  target=$(triple "$arch")
  cross=$(tests/setup --package)
  rustup target list --installed 2>/dev/null | grep -qx "$target" || rustup target add "$target" ||
    die "Rust's standard library for $target could not be installed."
  say "building visiond for $arch (the first time takes some minutes)"
  env CARGO_ZIGBUILD_ZIG_PATH="$cross/zig/zig" \
    "BINDGEN_EXTRA_CLANG_ARGS_${target//-/_}=$(bindgen_arguments "$target" "$cross/zig")" \
    "$cross/cargo-zigbuild" zigbuild --quiet --release --locked --package visiond --target "$target.$glibc"
  check_binary "${CARGO_TARGET_DIR:-target}/$target/release/visiond"
  install -D -m 755 "${CARGO_TARGET_DIR:-target}/$target/release/visiond" "target/package/$arch/visiond"
}

# A symbol of a newer glibc makes the program unusable on older systems: "version `GLIBC_2.34' not found".
check_binary() { # FILE
  local newest
  newest=$(readelf --version-info --wide "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n1)
  [ -n "$newest" ] || die "$1 names no version of glibc: is it the right file?"
  [ "$(printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V | tail -n1)" = "GLIBC_$glibc" ] ||
    die "$1 needs $newest, newer than the GLIBC_$glibc it is built for."
}

build_deb() { # ARCH: target/package/visiond_VERSION_ARCH.deb
  local arch=$1 tree=target/package/$1/tree version deb
  version=$(cargo metadata --no-deps --format-version 1 | grep -o '"name":"visiond","version":"[^"]*"' | cut -d'"' -f8)
  deb=target/package/visiond_${version}_$arch.deb
  rm -rf "$tree"
  install -D -m 755 "target/package/$arch/visiond" "$tree/usr/bin/visiond"
  mkdir -p "$tree/usr/lib/systemd/system"
  sed 's|/usr/local/bin/|/usr/bin/|' systemd/visiond.service >"$tree/usr/lib/systemd/system/visiond.service"
  mkdir "$tree/DEBIAN"
  sed "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@GLIBC@/$glibc/; s/@SIZE@/$(du -sk --exclude=DEBIAN "$tree" | cut -f1)/" \
    systemd/deb/control >"$tree/DEBIAN/control"
  dpkg-deb --root-owner-group -Zxz --build "$tree" "$deb" >&2
  echo "$deb"
}
