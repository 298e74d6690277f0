#!/bin/sh
# Consumes a queue with curl. Runs a command for each message, which gets the answer of `take` as JSON on its stdin.
#
#   DELAYQ_URL=http://127.0.0.1:5556 DELAYQ_TOKEN=dq_... ./consume.sh QUEUE COMMAND...
#
# If the command succeeds, the message is acknowledged. If it fails, the message comes again after DELAYQ_RETRY_S.
set -u

queue=$1
shift
lease_s=${DELAYQ_LEASE_S:-60}

# Sends a request. Prints the answer; the HTTP status is in $status.
call() {
  reply=$(curl --silent --max-time 90 --write-out '\n%{http_code}' --request POST \
    --header "Authorization: Bearer $DELAYQ_TOKEN" --header 'Content-Type: application/json' "$@")
  status=${reply##*
}
  answer=${reply%
*}
}

stop=
trap 'stop=1' TERM INT # after the message in hand

while [ -z "$stop" ]; do
  call "$DELAYQ_URL/v1/queues/$queue:take?wait=20s&max=1&lease=${lease_s}s"
  case $status in
    200) ;;
    "" | 000 | 429 | 5??) sleep 2 && continue ;; # away, or too busy: later
    *) echo "$answer" >&2 && exit 1 ;;
  esac
  lease=$(printf '%s' "$answer" | sed -n 's/^{"lease": *{"id": *"\([^"]*\)".*/\1/p')
  [ -n "$lease" ] || continue # nothing came in time
  url="$DELAYQ_URL/v1/leases/$lease"

  # The lease is extended while the command runs.
  (while sleep "$((lease_s / 2))"; do call "$url:extend" --data "{\"seconds\": $lease_s}"; done) &
  extending=$!
  if printf '%s' "$answer" | "$@"; then
    settle=ack body='{"tags": ["1"]}'
  else
    settle=release body="{\"tags\": [\"1\"], \"delay\": ${DELAYQ_RETRY_S:-30}}"
  fi
  kill "$extending"
  call "$url:$settle" --data "$body"
  [ "$status" = 200 ] || echo "$settle: $answer" >&2 # 410: the lease ended before, so the message comes again
done
