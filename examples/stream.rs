//! Forwards over a connection that the decision opens itself: `cargo run --example stream -- 127.0.0.1:8000 127.0.0.1:8001`.
//! Where it comes from is the caller's business: a tunnel, a namespace, a pool, TLS.

use carom::{Bounce, Head, Proxy};
use tokio::net::TcpStream;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [listen, backend]: [String; 2] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: stream LISTEN BACKEND")?;
    let proxy = Proxy::builder()
        .listen(listen.as_str())
        .decide(async move |_: &Head<'_>, bounce: Bounce| match TcpStream::connect(&backend).await {
            Ok(stream) => bounce.stream(stream),
            Err(error) => bounce.respond(502, format!("{backend}: {error}\n")),
        })
        .bind()
        .await?;
    println!("listening on {}", proxy.addresses()[0]);
    proxy.run_until(std::future::pending()).await?;
    Ok(())
}
