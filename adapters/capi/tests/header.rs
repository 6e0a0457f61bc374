//! The header that C programs include is what the functions say. `TIDELOCK_HEADER=write cargo test -p tidelock-capi --test header`
//! writes it anew.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut header = Vec::new();
    let sources = ["status", "schema", "peer", "world", "event"].map(|name| root.join(format!("src/{name}.rs")));
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |b, source| b.with_src(source));
    builder.generate().expect("the functions can be told in C").write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    let path = root.join("include/tidelock.h");
    if std::env::var_os("TIDELOCK_HEADER").is_some_and(|how| how == "write") {
        std::fs::write(&path, &header).expect("the header can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("include/tidelock.h");
    assert!(kept == header, "include/tidelock.h is not what the functions say; see this file's first lines for how to write it");
}
