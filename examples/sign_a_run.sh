#!/bin/sh
# Sign a run, and check it as somebody who believes nothing: sh examples/sign_a_run.sh
set -e
mkdir -p out
openssl genpkey -algorithm ed25519 -out out/key.pem
openssl pkey -in out/key.pem -pubout -out out/public.pem
evalrun run --endpoint builtin:demo --output out/signed --quiet
evalrun attest out/signed --key out/key.pem --output out/signed.bundle
evalrun verify out/signed.bundle --trust out/public.pem --sample 5
