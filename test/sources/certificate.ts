import { createPrivateKey } from 'node:crypto';

// Made for these tests and good for a hundred years; nothing else knows or trusts it.
const keyText =
  'MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgF6OOglvJBqv9k2auK/kHO6L2uxOsr3QKQgjIvpQ54qqhRANCAARJTxB9mqOu7hf0yFPGVjxXX0z15+HaEMXKxVeHfr8f9JIWEZemZMs6uctwzH+WA9Ix2GUHgAldmCjwg4enqdiX';
const certificateText =
  'MIIBnDCCAUGgAwIBAgIUVt976o3seHMZa8jyo1QBQtXqE0IwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExNjAzNDcyMVoYDzIxMjYxMDIzMDM0NzIxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARJTxB9mqOu7hf0yFPGVjxXX0z15+HaEMXKxVeHfr8f9JIWEZemZMs6uctwzH+WA9Ix2GUHgAldmCjwg4enqdiXo28wbTAdBgNVHQ4EFgQUBi6og1dOpcGPOjrly6sVhnZoQdowHwYDVR0jBBgwFoAUBi6og1dOpcGPOjrly6sVhnZoQdowDwYDVR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZIzj0EAwIDSQAwRgIhAKwNs4ZaqvZ9g1xpsXDAga36xsxpX0x3ny71OPvsKaAnAiEAuD2N4GRP8Ed7MssU5A2EF2h5FIQVGp8u/vWLzCmomPI=';

/** A certificate of localhost and 127.0.0.1, and its key. */
export const certificate = {
  cert: `-----BEGIN CERTIFICATE-----\n${certificateText.replace(/.{64}/g, '$&\n')}\n-----END CERTIFICATE-----\n`,
  key: createPrivateKey({ key: Buffer.from(keyText, 'base64'), format: 'der', type: 'pkcs8' }).export({
    format: 'pem',
    type: 'pkcs8',
  }),
};
