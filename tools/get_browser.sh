#!/bin/sh
# Chromium for the tests that open our pages; without it they are skipped, so nothing here fails.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests/browser will be skipped: no Chromium here; apt-get install chromium" >&2
    exit 0
fi
echo "installing chromium, in which tests/browser opens our pages"
export DEBIAN_FRONTEND=noninteractive
get="apt-get install -y -qq --no-install-recommends chromium"
if ! { $get || { apt-get update -qq && $get; }; } >/dev/null 2>&1; then
    echo "tests/browser will be skipped: apt-get install chromium failed" >&2
fi
exit 0
