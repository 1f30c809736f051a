#!/bin/sh
# Makes what a secured cluster needs, unless it is there already:
#   credentials.sh FOLDER NAME…        the names, or addresses, by which brokers are reached
#
#   FOLDER/authority    ca.key makes certificates and private.key makes tokens, for anybody: keep
#                       both off the brokers. admin.token and app.token are for operators and for
#                       clients.
#   FOLDER/broker       what brokers read: their certificate and its key, the authority's
#                       certificate, the key that checks tokens, their own token
#   FOLDER/monitoring   what Prometheus reads: the authority's certificate, a token without rights
#
# Certificate and tokens end after DAYS (default 365). To renew them, remove
# FOLDER/broker/broker.token, keep FOLDER/authority, and run this again.
set -eu
umask 077
if [ $# -lt 2 ]; then
    echo "usage: $0 FOLDER NAME…" >&2
    exit 2
fi
for program in openssl loadmanager; do
    command -v "$program" > /dev/null || { echo "$program is not found" >&2; exit 1; }
done
folder=$1
shift
days=${DAYS:-365}
mkdir -p "$folder/authority" "$folder/broker" "$folder/monitoring"
if [ -e "$folder/broker/broker.token" ]; then
    echo "$folder/broker/broker.token is there: nothing was changed"
    exit 0
fi

names=
for name in "$@"; do
    case $name in
        *[!0-9.]*) kind=DNS ;;
        *) kind=IP ;;
    esac
    case $name in *:*) kind=IP ;; esac
    names="${names:+$names,}$kind:$name"
done

cd "$folder"
if [ ! -e authority/ca.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj "/CN=authority of loadmanager" -keyout authority/ca.key -out authority/ca.new
    mv authority/ca.new authority/ca.pem
fi
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=broker" \
    -addext "subjectAltName=$names" -keyout broker/broker.key -out broker/broker.csr
openssl x509 -req -in broker/broker.csr -CA authority/ca.pem -CAkey authority/ca.key \
    -CAcreateserial -days "$days" -copy_extensions copy -out broker/broker.pem
rm broker/broker.csr
cp authority/ca.pem broker/ca.pem

if [ ! -e authority/public.key ]; then
    rm -f authority/private.key authority/public.new
    loadmanager tokens create-key authority/private.key authority/public.new --algorithm ES256
    mv authority/public.new authority/public.key
fi
cp authority/public.key broker/public.key
for role in broker admin app monitoring; do
    loadmanager tokens create --subject "$role" --private-key "file://$PWD/authority/private.key" \
        --algorithm ES256 --expires "${days}d" > "authority/$role.token"
done
mv authority/monitoring.token monitoring/monitoring.token
cp authority/ca.pem monitoring/ca.pem
# Prometheus runs as another user, and both files open nothing but /metrics.
chmod 755 monitoring
chmod 644 monitoring/*
# The last one: with it everything is there.
mv authority/broker.token broker/broker.token
echo "made $folder/authority, $folder/broker and $folder/monitoring for $names"
