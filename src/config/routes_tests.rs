use super::*;

fn table(text: &str) -> Table {
    parse(Path::new("routes.toml"), text.as_bytes(), &[], None).unwrap_or_else(|report| panic!("{report}"))
}

fn report(name: &str, text: &str) -> Report {
    let listeners = ["[::]:80".parse().unwrap()];
    parse(Path::new(name), text.as_bytes(), &listeners, None).expect_err(text)
}

#[test]
#[ignore]
fn show() {
    for text in [
        "\"a.test\" = 8001\n\"b.test\" = 70000\n\"c.test\" = \"app.internal\"\n",
        "\"a.test\" = 8001\n\"A.test.\" = 8002\n",
        "\"a.test\" = 8001\n\"a.test\" = 8002\n",
        "[\"a.test\"]\nto = 8001\nalso = [\"b.test\", \"B.test\"]\n[\"b.test\"]\nto=1\n",
        "[\"a.test\"]\nto = 8001\nredirct = \"x\"\n\"blog.test\" = 8003\n",
        "beep.example.com = 8001\nboop.example.com = 8002\nbeep.example.org=8003\n",
        "[beep.example.com]\nto = 8001\n",
        "*.example.com = 8001\n\"ok.test\" = 8001\n\"x\" = \n",
        "\"a.test\" = [8001, 8002\n\"b.test\" = 1\n",
        "\"a.test\" = 80\n",
        "",
        "# only\n",
        "{\"a\": 1, }",
        "{\"a\": 1, \"a\": 2, \"b\": null}",
        "\"a.test\" = { to = 1, redirect = \"new.example.com\" }",
        "\"a.test\" = { redirect = \"https://new.example.com/ä\", balance = \"leest-connections\" }",
        "\"a.test\" = { respond = { status = 99, bdy = \"x\" } }",
        "\"a.test\" = \"https://x\"\n\"b.test\" = {to = 1, health = {}}\nkey",
    ] {
        println!("=== {text}\n{}\n", report("routes.toml", text));
    }
}
