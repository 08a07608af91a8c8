# The router of vllm-project/router. Its own routes that add and remove workers ask for no key: it has to
# listen where only the door before it can reach it.
FROM python:3.11-slim-bookworm
RUN pip install --no-cache-dir vllm-router==0.1.17
USER 65532:65532
ENTRYPOINT ["vllm-router"]
