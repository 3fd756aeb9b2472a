"""gRPC through carom, by grpcio: grpcio.py NAME ADDRESS AUTHORITY [CA]"""

import asyncio
import sys
import threading

import grpc

from check import check, same

name, address, authority = sys.argv[1:4]
options = [("grpc.default_authority", authority), ("grpc.ssl_target_name_override", authority)]
if len(sys.argv) > 4:
    with open(sys.argv[4], "rb") as ca:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read()), options)
else:
    channel = grpc.insecure_channel(address, options)

text = {"request_serializer": str.encode, "response_deserializer": bytes.decode}
unary = channel.unary_unary("/carom.Test/Unary", **text)
server_stream = channel.unary_stream("/carom.Test/ServerStream", **text)
client_stream = channel.stream_unary("/carom.Test/ClientStream", **text)
bidi = channel.stream_stream("/carom.Test/Bidi", **text)
nothing = channel.unary_unary("/carom.Test/Nothing", **text)


def a_unary_call():
    answer, call = unary.with_call("hello", timeout=20, metadata=[("x-mine", "yes")])
    same(answer, "hello back")
    same(dict(call.trailing_metadata())["x-trailer"], "behind")


def statuses():
    for code in range(1, 17):
        try:
            unary(f"fail {code}", timeout=20)
            raise AssertionError("no failure")
        except grpc.RpcError as error:
            same((error.code().value[0], error.details()), (code, f"failed with {code} – as asked"))


def trailers_only():
    try:
        nothing("x", timeout=20)
        raise AssertionError("no failure")
    except grpc.RpcError as error:
        same(error.code(), grpc.StatusCode.UNIMPLEMENTED)


def the_server_streams():
    same(list(server_stream("50", timeout=20)), [str(n) for n in range(1, 51)])


def the_client_streams():
    same(client_stream(iter(["a", "b", "c"]), timeout=20), "a b c")
    same(client_stream(("x" * 250_000 for _ in range(40)), timeout=20), "10000000 characters")


def both_stream():
    turn = threading.Semaphore(1)

    def words():
        for word in ["one", "two", "three"]:
            turn.acquire()
            yield word

    said = []
    for word in bidi(words(), timeout=20):
        said.append(word)
        turn.release()
    same(said, ["ONE", "TWO", "THREE"])


def a_cancelled_call():
    before = int(unary("cancelled", timeout=20))
    call = server_stream("0", timeout=20)
    next(call)
    call.cancel()
    for _ in range(300):
        if int(unary("cancelled", timeout=20)) > before:
            return
        threading.Event().wait(0.01)
    raise AssertionError("not cancelled behind within 3 s")


def a_deadline():
    try:
        unary("wait", timeout=0.3)
        raise AssertionError("no failure")
    except grpc.RpcError as error:
        same(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED)


async def main():
    for what, body in [
        ("a unary call, with its trailers", a_unary_call),
        ("every status is unchanged", statuses),
        ("a method that is not there", trailers_only),
        ("the server streams", the_server_streams),
        ("the client streams", the_client_streams),
        ("both stream, in turn", both_stream),
        ("a cancelled call is cancelled behind", a_cancelled_call),
        ("a deadline", a_deadline),
    ]:
        await check(f"{name}: {what}", lambda body=body: asyncio.to_thread(body))


asyncio.run(main())
