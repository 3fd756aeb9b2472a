// The service that server and client have in common: text in, text out.

const text = {
  requestSerialize: (value) => Buffer.from(value),
  requestDeserialize: (bytes) => bytes.toString(),
  responseSerialize: (value) => Buffer.from(value),
  responseDeserialize: (bytes) => bytes.toString(),
};

function method(name, requestStream, responseStream) {
  return { path: `/carom.Test/${name}`, requestStream, responseStream, ...text };
}

export const service = {
  unary: method("Unary", false, false),
  serverStream: method("ServerStream", false, true),
  clientStream: method("ClientStream", true, false),
  bidi: method("Bidi", true, true),
};
