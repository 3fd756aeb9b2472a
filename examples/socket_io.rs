//! socket.io behind a proxy: `cargo run --example socket_io -- 127.0.0.1:8000 8001 8002`. Pages go to one server, and
//! all that socket.io does, polling and WebSocket alike, to another; upgrades need nothing said about them.

use carom::{Bounce, Head, Proxy};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [listen, pages, sockets]: [String; 3] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: socket_io LISTEN PAGES SOCKETS")?;
    let proxy = Proxy::builder()
        .listen(listen.as_str())
        .decide(async move |head: &Head<'_>, bounce: Bounce| match head.path() {
            path if path.starts_with(b"/socket.io/") => bounce.to(sockets.as_str()),
            _ => bounce.to(pages.as_str()),
        })
        .bind()
        .await?;
    println!("listening on {}", proxy.addresses()[0]);
    proxy.run_until(std::future::pending()).await?;
    Ok(())
}
