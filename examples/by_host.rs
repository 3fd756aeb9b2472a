//! Routes by host: `cargo run --example by_host -- 127.0.0.1:8000 8001 8002`, then
//! `curl -H 'Host: beep.example.com' http://127.0.0.1:8000/`.

use carom::{Bounce, Head, Proxy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [listen, beep, boop]: [String; 3] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: by_host LISTEN BEEP BOOP")?;
    let proxy = Proxy::builder()
        .listen(listen.as_str())
        .decide(async move |head: &Head<'_>, bounce: Bounce| match head.host() {
            Some(host) if host == "beep.example.com" => bounce.to(beep.as_str()),
            Some(host) if host == "boop.example.com" => bounce.to(boop.as_str()).header("x-from", "carom"),
            _ => bounce.respond(404, "no such host\n"),
        })
        .bind()
        .await?;
    println!("listening on {}", proxy.addresses()[0]);
    proxy.run_until(std::future::pending()).await?;
    Ok(())
}
